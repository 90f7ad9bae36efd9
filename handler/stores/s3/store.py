"""A repository in S3 or in a store that speaks its API.

It needs s3:GetObject, and s3:ListBucket to find versions. It sends no other request.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from core.errors import ModelNotLoadable, ModelUnavailable
from handler.settings import Settings
from handler.stores import File, Forbidden
from handler.stores.progress import Progress
from handler.stores.s3.client import PAGE, Client
from handler.stores.s3.listing import Page
from handler.stores.s3.location import locate
from handler.stores.transfer.fetching import is_plain, without_folders
from handler.stores.transfer.retries import Failed, OutOfTime
from handler.stores.transfer.store import FetchedStore

AFTER_SLASH: Final = "0"
"""The character after the slash: no key below a folder follows the folder's name with it."""


class S3Store(FetchedStore):
    def __init__(self, settings: Settings) -> None:
        self._place = locate(settings.repository, os.environ)
        self._client = Client(settings, self._place)
        super().__init__(settings, self._client)
        self._accepts = settings.s3_anonymous

    @property
    def accepts(self) -> bool:
        """Whether something shows that the store accepts the keys, or there are none."""
        return self._accepts or self._fetcher.proved

    def check(self, progress: Progress | None = None) -> None:
        try:
            self._client.page({"prefix": self._place.prefix, "max-keys": "1"}, progress or Progress())
        except Forbidden:
            return  # the store answers, and reading single files is possibly permitted

    def confirm(self, progress: Progress | None = None) -> None:
        """Raises ServingError if listing is denied, and nothing shows that the store accepts the keys.

        A model that was read shows it, and so does another refusal of a wrong signature than of this listing.
        """
        progress = progress or Progress()
        with suppress(Failed, OutOfTime):
            self._accepts = self.accepts or self._client.tried(lambda bucket: bucket.forged(progress.left), progress)
        if not self.accepts:
            raise ModelNotLoadable(
                f"{self.uri}: access denied: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or grant "
                "s3:ListBucket; with s3:GetObject alone, the first model that loads shows that the keys are right"
            )

    def glance(self, progress: Progress | None = None) -> Mapping[str, Sequence[File]] | None:
        """Returns every model's files if they fit in one page of a listing, else None. Raises Forbidden."""
        page = self._page({}, progress)
        if page.following is not None:
            return None
        return {name: without_folders(files) for name, files in self._by_model(page, {}).items()}

    def everything(self, progress: Progress | None = None) -> Mapping[str, Sequence[File] | None]:
        """Returns every model's files, with a request for each 1,000 objects.

        Skips a model that fills a whole page: its value is None. A request for it alone lists it.
        """
        return self._everything(progress, skips=True) or self._everything(progress, skips=False)

    def _everything(self, progress: Progress | None, *, skips: bool) -> dict[str, Any]:
        """Returns an empty mapping if the store ignores `start-after`, by which models are skipped."""
        found: dict[str, Any] = {}
        after: dict[str, str] = {}
        seen: set[str] = set()
        while True:
            page = self._page(after, progress)
            if skips and "start-after" in after and page.objects and page.objects[0].key <= after["start-after"]:
                return {}
            last = page.objects[-1].key if page.objects else ""
            self._by_model(page, found)
            if page.following is None:
                return {name: files and without_folders(files) for name, files in found.items()}
            only = self._model_of(last)
            if skips and only is not None and only == self._model_of(page.objects[0].key):
                found[only] = None
                after = {"start-after": f"{self._place.prefix}{only}{AFTER_SLASH}"}
            else:
                after = self._client.after(page.following, seen)

    def _page(self, after: Mapping[str, str], progress: Progress | None) -> Page:
        parameters = {"prefix": self._place.prefix, "max-keys": str(PAGE), **after}
        try:
            return self._client.page(parameters, progress or Progress())
        except Forbidden:
            raise Forbidden(self._unlisted) from None

    def _model_of(self, key: str) -> str | None:
        name, slash, _ = key[len(self._place.prefix) :].partition("/")
        return name if slash else None

    def _by_model(self, page: Page, found: dict[str, Any]) -> dict[str, Any]:
        for each in page.objects:
            name = self._model_of(each.key)
            if name is None:
                continue
            files, path = found.setdefault(name, []), each.key[len(self._place.prefix) + len(name) + 1 :]
            if files is not None and is_plain(path):
                files.append(File(path, each.size, each.etag, each.checked))
        return found

    def models(self, progress: Progress | None = None) -> Sequence[str]:
        prefix = self._place.prefix
        try:
            pages = list(self._client.pages({"prefix": prefix, "delimiter": "/"}, progress or Progress()))
            names = sorted(folder[len(prefix) : -1] for page in pages for folder in page.folders)
            # s3rver leaves the folders out below a prefix.
            return names or sorted(self.everything(progress))
        except Forbidden:
            raise ModelUnavailable(self._unlisted) from None

    @property
    def _unlisted(self) -> str:
        return f"listing bucket {self._place.bucket!r} is not permitted: grant s3:ListBucket to see its models"

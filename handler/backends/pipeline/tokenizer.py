"""From texts to a model's tokens, with the tokenizers library and the file that Hugging Face's models come with.

The library splits texts; padding is done here, in numpy, so that the memory of a request is known before it is taken:
the library holds about 170 bytes for each token, padding included.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.dtype import BYTES, INT64, NDArray
from core.errors import InvalidInput, ModelFailed, ServingError, TooMany, shown
from core.tensor import Tensor, TensorSpec, flat_texts
from handler.backends.reasons import one_line
from handler.backends.runs import check
from handler.settings.checked import Wrong, size_of
from handler.settings.functions import TokenizerSettings

TEXT: Final = "text"
PAIR: Final = "text_pair"
IDS: Final = "input_ids"
MASK: Final = "attention_mask"
TYPES: Final = "token_type_ids"
COUNT: Final = "token_count"
LARGEST_FILE: Final = 256 * 1024 * 1024
CHARACTERS_OF_TOKEN: Final = 64
"""The characters for each token that is kept, of which a text is read: tokens have 4 on average. Without this, a text
of megabytes is split as a whole for the few hundred tokens of its beginning."""
TOGETHER: Final = 256 * 1024
"""Characters that are split at once: some megabytes of tokens, and a moment after which the work can be ended."""
PANIC: Final = "PanicException"
"""The class of the library's own mistakes. It is not an Exception, and no module has it."""
PAD_TOKENS: Final = ("[PAD]", "<pad>", "<|padding|>")
"""The names of the padding token, if neither the settings nor the file name one."""


def opened(said: TokenizerSettings, folder: Path, path: str) -> Any:
    """Returns the tokenizer of a file in the version's folder. `path`: of the settings. Raises Wrong."""
    from tokenizers import Tokenizer  # noqa: PLC0415 - 50 ms of cold start for servers without texts

    file, place = folder / said.file, f"{path}.file"
    try:
        if (size := size_of(file)) > LARGEST_FILE:
            raise Wrong(place, f"{said.file}, {size} bytes", f"at most {LARGEST_FILE} bytes")
        content = file.read_bytes()
    except OSError as error:
        raise Wrong(place, said.file, f"a file in the version's folder ({error.strerror})") from None
    try:
        with panics_as_errors():
            return Tokenizer.from_buffer(content)
    except Exception as error:  # noqa: BLE001 - the library has no class of its own
        expected = f"a tokenizer.json of Hugging Face's tokenizers ({one_line(error)})"
        raise Wrong(place, said.file, expected) from None


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raises RuntimeError in place of a panic of the library, which would end the thread instead of the request."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        raise RuntimeError(one_line(error)) from error


class SplitTexts:
    """BYTES [n], and perhaps a pair for each, to INT64 [n, tokens]. `count`: the tokens of each text without padding.

    Texts are cut at `max_length` tokens, special ones included, or refused if the settings say "none".
    """

    steady = False  # like requests do not take like times, and the library's threads are not the event loop's
    inputs = (TensorSpec(TEXT, BYTES, (-1,)), TensorSpec(PAIR, BYTES, (-1,), optional=True))

    def __init__(self, said: TokenizerSettings, tokenizer: Any, path: str) -> None:
        """Raises Wrong for settings that do not fit the file."""
        cut, filled = tokenizer.truncation or {}, tokenizer.padding or {}
        longest = said.max_length or cut.get("max_length")
        if longest is None:
            raise Wrong(f"{path}.max_length", None, f"the most tokens that the model takes: {said.file} has no number")
        special = max(tokenizer.num_special_tokens_to_add(pair) for pair in (False, True))
        if longest <= special:
            raise Wrong(f"{path}.max_length", longest, f"more than the {special} special tokens of {said.file}")
        self._longest = int(longest)
        self._is_fixed = said.padding == "max_length"
        self._most = said.max_tokens
        self._refuses = said.truncation == "none"
        self._from_left = cut.get("direction") == "left" and not self._refuses
        self._pads_left = (said.padding_side or filled.get("direction", "right")) == "left"
        self._pad, self._pad_type = _padding(said, tokenizer, path)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        if not self._refuses:
            direction = "left" if self._from_left else "right"
            tokenizer.enable_truncation(self._longest, strategy=said.truncation, direction=direction)
        self._needs_pair = said.truncation == "only_second"
        self._tokenizer = tokenizer
        width = self._longest if self._is_fixed else -1
        self.outputs = (*(TensorSpec(name, INT64, (-1, width)) for name in (IDS, MASK, TYPES)),
                        TensorSpec(COUNT, INT64, (-1,)))  # fmt: skip

    def outlined(self, shapes: Mapping[str, tuple[int, ...] | None]) -> Mapping[str, tuple[int, ...]]:
        """Returns the number of texts, where it is known."""
        count = (shapes.get(TEXT) or (-1,))[0]
        return {spec.name: (count, *(spec.shape or ())[1:]) for spec in self.outputs}

    def run(self, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Raises InvalidInput for bytes that are not UTF-8, and for pairs of another number; TooMany."""
        self._check(inputs[TEXT].array.size, self._longest if self._is_fixed else 1)
        texts: Sequence[Any] = self._texts(inputs[TEXT])
        if PAIR in inputs:
            pairs = self._texts(inputs[PAIR])
            if len(pairs) != len(texts):
                raise InvalidInput(f"{PAIR} has {len(pairs)} texts, and {TEXT} has {len(texts)}: expected as many")
            texts = [*zip(texts, pairs, strict=True)]
        elif self._needs_pair:
            raise InvalidInput(f"{TEXT} has no {PAIR}, which alone is cut by this tokenizer's settings")
        lengths, ids, types = self._split(texts)
        return self._padded(lengths, ids, types)

    def _texts(self, tensor: Tensor) -> list[str]:
        """Returns the texts, or of each as much as can be among the tokens that are kept. Raises InvalidInput."""
        try:
            texts = flat_texts(tensor)
        except UnicodeDecodeError as error:
            raise InvalidInput(f"{tensor.name} has the bytes {shown(error.object)}, which are not UTF-8") from None
        most = self._longest * CHARACTERS_OF_TOKEN
        for index, text in enumerate(texts):
            if len(text) > most:
                if self._refuses:
                    raise self._too_long(index, f"{len(text)} characters")
                texts[index] = text[-most:] if self._from_left else text[:most]
        return texts

    def _split(self, texts: Sequence[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Returns the number of tokens of each text, and all their ids and type ids, one text after another."""
        lengths, ids, types, widest = np.zeros(len(texts), np.int64), [], [], 1
        for start, end in _portions(texts):
            check()  # raises why another thread has ended it
            try:
                with panics_as_errors():
                    found = self._tokenizer.encode_batch(texts[start:end])
            except Exception as error:
                raise _failure(error) from error
            lengths[start:end] = own = [len(each.ids) for each in found]
            widest = max(widest, *own)
            if widest > self._longest:
                raise self._too_long(start + own.index(widest), f"{widest} tokens")
            self._check(len(texts), widest)
            ids.append(np.fromiter(chain.from_iterable(each.ids for each in found), np.int64, sum(own)))
            types.append(np.fromiter(chain.from_iterable(each.type_ids for each in found), np.int64, sum(own)))
        none = np.zeros(0, np.int64)
        return lengths, np.concatenate([none, *ids]), np.concatenate([none, *types])

    def _padded(self, lengths: NDArray[Any], ids: NDArray[Any], types: NDArray[Any]) -> Mapping[str, Tensor]:
        width = self._longest if self._is_fixed else max(1, lengths.max(initial=0))
        places = np.arange(width)
        is_token = places >= (width - lengths)[:, None] if self._pads_left else places < lengths[:, None]
        filled = {
            IDS: np.full(is_token.shape, self._pad, np.int64),
            MASK: is_token.astype(np.int64),
            TYPES: np.full(is_token.shape, self._pad_type, np.int64),
        }
        filled[IDS][is_token], filled[TYPES][is_token] = ids, types
        return {name: Tensor(name, INT64, array) for name, array in (*filled.items(), (COUNT, lengths))}

    def _check(self, texts: int, width: int) -> None:
        """Raises TooMany for more tokens than a request may have, before they are made."""
        if texts * width > self._most:
            raise TooMany(
                f"{texts} texts of up to {width} tokens are {texts * width} tokens with padding; at most {self._most} "
                f"are taken at once: send at most {max(1, self._most // width)} such texts in a request"
            )

    def _too_long(self, index: int, size: str) -> InvalidInput:
        return InvalidInput(f"text {index} has {size}; at most {self._longest} tokens are taken")


def _failure(error: Exception) -> ServingError:
    """Returns the client's mistake, or the tokenizer's: the library has one class for both."""
    text = one_line(error)
    if "runcation error" in text:  # a pair whose other text alone is longer than both may be
        return InvalidInput(f"the texts cannot be cut as the tokenizer's settings say: {text}")
    return ModelFailed(f"the tokenizer failed: {text}")


def _portions(texts: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Yields the bounds of texts that are split together."""
    start = size = 0
    for index, text in enumerate(texts):
        length = len(text) if isinstance(text, str) else sum(map(len, text))
        if size and size + length > TOGETHER:
            yield start, index
            start, size = index, 0
        size += length + 1
    if size:
        yield start, len(texts)


def _padding(said: TokenizerSettings, tokenizer: Any, path: str) -> tuple[int, int]:
    """Returns the id and the type id of the token that fills up. Raises Wrong if there is none."""
    filled = tokenizer.padding
    if said.pad_token is None and filled is not None:
        return int(filled["pad_id"]), int(filled["pad_type_id"])
    names = PAD_TOKENS if said.pad_token is None else (said.pad_token,)
    found = next((number for number in map(tokenizer.token_to_id, names) if number is not None), None)
    if found is None:
        expected = f"a token of {said.file}" + ("; it names none for padding" if said.pad_token is None else "")
        raise Wrong(f"{path}.pad_token", said.pad_token, expected)
    return int(found), 0

# Dragoman in an image: a server, the default, or a Lambda function. docs/images.md.
#
#   docker build --tag dragoman .
#   docker run --read-only --tmpfs /tmp --volume "$PWD/models:/models:ro" --publish 8080:8080 dragoman
#
# The context is a checkout, or what `dragoman build-image` makes: wheels/, models in repository/, constraints.txt.

ARG PYTHON=python:3.13-slim
ARG LAMBDA=public.ecr.aws/lambda/python:3.13

FROM ${PYTHON} AS tools
# Wheels and bytecode are the same whenever they are made.
ENV SOURCE_DATE_EPOCH=315532800 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /tools && /tools/bin/pip install --quiet cyclonedx-bom==7.5.0
WORKDIR /context
COPY . .
# COPY keeps the modes of the models' files, and neither image runs as root.
RUN set -eu; \
  ls wheels/*.whl >/dev/null 2>&1 || /tools/bin/pip wheel --quiet --no-deps --wheel-dir wheels .; \
  touch constraints.txt; \
  mkdir -p repository; \
  mv repository /models; \
  chmod -R a+rX /models
# What no request needs: tests, sources in C, parts of ONNX Runtime for those who make models, AWS's other services.
RUN printf '%s\n' 'set -eu; cd "$1"' \
  'rm -rf onnxruntime/datasets onnxruntime/quantization onnxruntime/tools onnxruntime/transformers' \
  'for each in botocore/data/*/; do case "$each" in */iam/|*/s3/|*/signin/|*/sso*/|*/sts/) ;; *) rm -rf "$each" ;; esac; done' \
  'find . -type d \( -name test -o -name tests \) -prune -exec rm -rf {} +' \
  'find . -type f \( -name "*.a" -o -name "*.c" -o -name "*.cpp" -o -name "*.h" -o -name "*.pxd" -o -name "*.pyi" -o -name "*.pyx" \) -delete' \
  'python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$1" -p "$2" .' > /tools/finish

# -- the function -------------------------------------------------------------------------------------------------------
FROM tools AS function
ARG LAMBDA_EXTRAS=onnx
RUN set -eu; \
  /tools/bin/pip install --quiet --no-compile --target /function --constraint constraints.txt "$(ls wheels/dragoman-*.whl)[$LAMBDA_EXTRAS]"; \
  sh /tools/finish /function /var/task; \
  cd /function; \
  rm -rf bin handler/commands click* rich* markdown_it* mdurl* pygments*; \
  python3 -m handler.edge.runtime.bundling

FROM ${LAMBDA} AS lambda
COPY --from=function /function /var/task
COPY --from=tools /models /models
ENV DRAGOMAN_REPOSITORY=/models
CMD ["dragoman.aws.lambda_handler"]

# The same with our own runtime: docs/lambda-runtime.md.
FROM lambda AS streaming
ENTRYPOINT ["python3", "-m", "dragoman.runtime"]
CMD []

# -- the server ---------------------------------------------------------------------------------------------------------
FROM tools AS installed
ARG EXTRAS=server,onnx,grpc
RUN set -eu; \
  python3 -m venv --without-pip /opt/dragoman; \
  /tools/bin/pip --python /opt/dragoman/bin/python install --quiet --no-compile --constraint constraints.txt \
    "$(ls wheels/dragoman-*.whl)[$EXTRAS]"; \
  packages="$(/opt/dragoman/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"; \
  sh /tools/finish "$packages" "$packages"; \
  /tools/bin/cyclonedx-py environment --output-reproducible --output-file /opt/dragoman/sbom.cdx.json /opt/dragoman/bin/python; \
  mkdir /settings; \
  ln -s /models /settings/models; \
  printf 'host = "0.0.0.0"\ngrpc_port = 8081\n' > /settings/dragoman.toml

FROM ${PYTHON} AS server
LABEL org.opencontainers.image.title="dragoman" org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.description="Serves models over every standard inference protocol"
COPY --from=installed /opt/dragoman /opt/dragoman
COPY --from=installed /settings /etc/dragoman
COPY --from=tools /models /models
ENV PATH=/opt/dragoman/bin:$PATH
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true com.amazonaws.sagemaker.capabilities.multi-models=true
# The folder of dragoman.toml, which a mount may replace, and of models, the repository unless a platform has its own.
WORKDIR /etc/dragoman
USER 10001:10001
EXPOSE 8080 8081
# The check uses the port of the platform or of dragoman.toml, not that of a flag, and does not use a proxy.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s \
  CMD ["python3", "-c", "import sys; from http.client import HTTPConnection; from handler.settings.sources import SERVES, Layered; c = HTTPConnection('127.0.0.1', Layered({}, own=SERVES).own()['port'], timeout=4); c.request('GET', '/v2/health/live'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["dragoman"]
CMD ["serve"]

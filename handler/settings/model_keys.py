"""THE table of the keys of model-settings.json, for people: docs/model-settings.md is made from it.

`handler.settings.model` and the modules beside it read them. tests/handler/test_model_keys.py compares the two.
"""

from typing import Final

from core.records import NamedTuple


class ModelKey(NamedTuple):
    """A row of TABLE. `paths`: keys that mean the same, NAME for a name of the publisher's. `kind`: a type of JSON.

    `default`: JSON, or words if the value comes from elsewhere; "" without one.
    """

    paths: str
    kind: str
    default: str
    about: str


TABLE: Final = (
    ModelKey("name", "text", "the folder's name", "as in MLServer's files; another name than the folder's is refused, unless the operator or a platform names the model"),
    ModelKey("implementation", "text", "", "the runtime of another installed package, for a version without one of Dragoman's own files"),
    ModelKey("platform", "text", "the runtime's", "shown in metadata and configuration"),
    ModelKey("max_batch_size", "whole number", "0", "shown in the configuration, in which a model with `batching` alone has that of its batches. Above 0, a raw binary request is one row; V2's classification answers for each row, as it does for models whose tensors all have a variable first axis"),
    ModelKey("inputs, outputs", "array", "the model's own", "tensors, which complete the shapes of the model's file. If the rank, the datatype or a name differs from the file's, the load is refused. An input that has a value in an ONNX file is served only if these settings, a signature or config.pbtxt name it; requests may lack it, unless a signature makes an output of it"),
    ModelKey("inputs[].name, outputs[].name", "text", "required", "the tensor's name"),
    ModelKey("inputs[].datatype, outputs[].datatype", "text", "required", "a datatype of V2, such as `FP32` or `BYTES`"),
    ModelKey("inputs[].shape, outputs[].shape", "array", "null", "the sizes of its axes; -1 is any size, null is the file's own shape"),
    ModelKey("inputs[].reshape, outputs[].reshape", "array", "null", "the shape in the model's file, if requests and answers have another one, with as many elements and as many variable sizes. For ONNX models"),
    ModelKey("inputs[].format, outputs[].format", "text", '"FORMAT_NONE"', "`FORMAT_NHWC` or `FORMAT_NCHW`, which the configuration shows to Triton's image clients"),
    ModelKey("outputs[].labels", "array", "", "class labels of the last axis, for V2's classification extension and `:classify`"),
    ModelKey("inputs[].parameters, outputs[].parameters, inputs[].tags, outputs[].tags", "any value", "", "MLServer's; without effect"),
    ModelKey("version_policy", "object", '{"latest": {}}', "the versions that are served, by one of the next three keys"),
    ModelKey("version_policy.latest.num_versions", "whole number", "1", "how many of the newest versions"),
    ModelKey("version_policy.all", "object", "", "all versions, by an empty object"),
    ModelKey("version_policy.specific.versions", "array", "required", "these versions, such as `[1, 2]`"),
    ModelKey("version_labels", "object", "{}", 'versions by label, such as `{"stable": 1, "canary": 2}`, for `/v1/models/NAME/labels/LABEL`; a change applies from the next look for new versions'),
    ModelKey("canary", "object", "{}", 'shares of requests by version, such as `{"2": 0.1}`: see [canaries.md](canaries.md)'),
    ModelKey("signatures", "object", "a signature of all tensors", "signatures for `/v1`, by name; a request without a name gets `serving_default`"),
    ModelKey("signatures.NAME.method", "text", '"predict"', "`predict`, `classify` or `regress`. The inputs of the last two are features of examples"),
    ModelKey("signatures.NAME.inputs", "object", "all inputs", "tensors by alias: names, or objects with the keys below"),
    ModelKey("signatures.NAME.outputs", "object", "required", "the same of outputs. classify has `scores`, `classes` or both; regress has `outputs`"),
    ModelKey("signatures.NAME.class_labels", "array", "the output's", "labels of the output `scores`, also for V2's classification extension"),
    ModelKey("signatures.NAME.description", "any value", "", "a note for people; without effect"),
    ModelKey("signatures.NAME.inputs.ALIAS.tensor, signatures.NAME.outputs.ALIAS.tensor", "text", "required", "the name of a tensor of the model"),
    ModelKey("signatures.NAME.inputs.ALIAS.shape, signatures.NAME.outputs.ALIAS.shape", "array", "the tensor's", "the shape of one example's feature"),
    ModelKey("signatures.NAME.inputs.ALIAS.default, signatures.NAME.outputs.ALIAS.default", "any value", "", "the value of a missing input, that of one row for each row; without effect for an output"),
    ModelKey("signatures.NAME.inputs.ALIAS.encoding, signatures.NAME.outputs.ALIAS.encoding", "text", "null", '`bytes`, for a UINT8 tensor whose last axis holds the bytes of a string or of `{"b64"}`'),
    ModelKey("v1_dialect", "text", "`DRAGOMAN_V1_DIALECT`", "`auto`, `tfs` or `kserve`: the form of answers under `/v1`"),
    ModelKey("grpc_outputs", "text", "`DRAGOMAN_GRPC_OUTPUTS`", "`mirror` or `raw`: the form of tensors in V2's answers over gRPC"),
    ModelKey("explainer", "object", "", "how `:explain` calculates Shapley values: see [explain.md](explain.md)"),
    ModelKey("explainer.background", "array or object", "required", 'typical examples, at most 1,000: rows, rows by input, or `{"file": "background.npy"}` (`.json`, `.npy`, `.npz`) in the version\'s folder'),
    ModelKey("explainer.budget", "whole number", "2048", "the most coalitions of features for an example, from 4 to 65,536"),
    ModelKey("explainer.seed", "whole number", "0", "the seed of the estimate; equal seeds yield equal scores"),
    ModelKey("explainer.output", "text", "the first of class scores or numbers", "the output to explain"),
    ModelKey("explainer.target", "whole number", "each example's best class", "the index of the class to explain"),
    ModelKey("explainer.feature_names", "array or object", "", "a name for each element of an example, or such names by input"),
    ModelKey("embeddings", "object", "", "tensors of a model that answers `/v1/embeddings`: see [text.md](text.md#v1embeddings)"),
    ModelKey("embeddings.input", "text", "the only one of texts", "the input of texts"),
    ModelKey("embeddings.output", "text", "the only one of vectors", "the output of vectors"),
    ModelKey("embeddings.tokens", "text", "`token_count`", "the output of the numbers of tokens, for `usage`"),
    ModelKey("embeddings.dimensions", "true or false", "false", "whether clients can request shorter vectors"),
    ModelKey("pipeline", "object", "", "steps over other models, in place of a `pipeline.json`: see [pipelines.md](pipelines.md)"),
    ModelKey("pipeline.steps", "array", "required", "the steps, at most 64"),
    ModelKey("pipeline.inputs, pipeline.outputs", "array", "tensors without a step that makes or takes them", "the names of the pipeline's tensors"),
    ModelKey("pipeline.rows", "whole number", "all", "the most rows of a request that the steps have at a time"),
    ModelKey("warmup", "array", "[]", "requests that a version answers before it is ready; if one fails, the load fails. At most 1,000 in all, of 256 MiB each and 4 GiB together"),
    ModelKey("warmup[].random", "true or false", "", "`true`: random tensors of the declared shapes, 1 where a size is variable"),
    ModelKey("warmup[].file", "text", "", "in place of `random`: a V2 request in JSON, a file in the version's folder"),
    ModelKey("warmup[].count", "whole number", "1", "the number of times"),
    ModelKey("warmup[].shapes", "object", "{}", 'shapes of random tensors, by input, such as `{"x": [8, 13]}`'),
    ModelKey("timeout", "number", "`DRAGOMAN_TIMEOUT`", "seconds that one inference can run: see [overload.md](overload.md)"),
    ModelKey("max_concurrency", "whole number", "null", "the most inferences of a version at the same time: see [overload.md](overload.md)"),
    ModelKey("providers", "array", "`DRAGOMAN_PROVIDERS`", "ONNX Runtime's execution providers, such as `[\"CUDAExecutionProvider\", \"CPUExecutionProvider\"]`. One that this machine does not have, or that does not start, is refused. The metadata names those in use"),
    ModelKey("batching, dynamic_batching", "object", "", "requests that run together: see [batching.md](batching.md). The second is Triton's name; the next keys are those of both"),
    ModelKey("batching.max_batch_size", "whole number", "the model's own, else 32", "the most rows of a batch, at most 8,192"),
    ModelKey("batching.max_delay_ms", "number", "5", "the longest that a request waits for others, at most 1,000"),
    ModelKey("batching.max_queue_delay_microseconds, batching.batch_timeout_micros", "number", "5000", "the same, as Triton and TensorFlow Serving name it"),
    ModelKey("batching.preferred, batching.preferred_batch_size", "array", "[]", "sizes that need not wait for more rows"),
    ModelKey("batching.preserve_ordering, batching.priority_levels, batching.default_priority_level, batching.default_queue_policy, batching.priority_queue_policy, batching.num_batch_threads, batching.max_enqueued_batches", "any value", "", "those of other servers; without effect, because a batch has the limits of all requests"),
    ModelKey("http", "object", "", "the path on which a Python model answers whole requests: see [protocols/grps.md](protocols/grps.md#customised-http)"),
    ModelKey("http.path", "text", "required", "such as `/v1/chat/completions`"),
    ModelKey("http.methods", "array", '["POST"]', "some of `GET`, `POST`, `PUT`, `PATCH` and `DELETE`"),
    ModelKey("optimized", "object", "", "written by `dragoman push --optimize`: see [publishing.md](publishing.md#models-that-load-at-once)"),
    ModelKey("optimized.from", "object", "required", "the digests of the original's files, by name"),
    ModelKey("optimized.by, optimized.tolerance", "any value", "", "what has optimised them, and how far its answers differ at most"),
)  # fmt: skip
"""The keys of model-settings.json, as docs/model-settings.md shows them. pipelines.md and text.md have those of steps."""

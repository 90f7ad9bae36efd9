"""Every parameter's variants of template.yaml, expanded by SAM's own transform: the resources that would be made."""

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.sam import TEMPLATE
from tests.e2e.tools import ROOT, environment

BUCKET = {"Bucket": "example-models"}
JWT = {"Authorizer": "jwt", "JwtIssuer": "https://issuer.example/", "JwtAudience": "a,b"}
TOKENS = {
    "Auth": "jwt", "JwtIssuer": "https://issuer.example/", "JwtAudience": "a", "JwtKeys": "https://issuer.example/keys",
}  # fmt: skip
COGNITO = {"Authorizer": "cognito", "UserPool": "arn:aws:cognito-idp:us-east-1:123456789012:userpool/us-east-1_x"}
AUTHORIZERS: dict[str, dict[str, str]] = {
    "none": {}, "api-key": {"Authorizer": "api-key"}, "iam": {"Authorizer": "iam"}, "cognito": COGNITO, "jwt": JWT,
}  # fmt: skip
POSSIBLE = {
    "rest-api": {"none", "api-key", "iam", "cognito"},
    "http-api": {"none", "iam", "jwt"},
    "function-url": {"none", "iam"},
}
ORIGINS = {"closed": {}, "cors": {"CorsOrigins": "https://a.example,https://b.example"}}
TOPIC = "arn:aws:sns:us-east-1:123456789012:topic"
REST, HTTP, URL = {"Api": "rest-api"}, {"Api": "http-api"}, {"Api": "function-url"}
ALARMS = {"Alarms": "on", "AlarmTopic": TOPIC, "Timeout": "60"}

# A variant's parameters, and what it makes: a resource, a dot, and the way to a property. None: it makes none.
ANY, PREFLIGHT = "Gateway.Body.paths./{proxy+}.x-amazon-apigateway-any-method", "Gateway.Body.paths./{proxy+}.options"
SCHEME, TYPE = "Gateway.Body.components.securitySchemes.caller", "x-amazon-apigateway-authtype"
VARIABLES, LOGGING = "InferenceFunction.Environment.Variables", "InferenceFunction.LoggingConfig"
OBJECTS = {"Batch": "objects", "BatchBucket": "example-data", "BatchPrefix": "a/b"}
RIGHTS = "InferenceFunctionRole.Policies.1.PolicyDocument.Statement"
DIMENSIONS = "ServerErrors.Dimensions"
CALLER = [{"caller": []}]
VARIANTS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "default": ({}, {
        "Gateway.Body.info.title": "mine", f"{ANY}.security": [], f"{PREFLIGHT}.security": [],
        "Gateway.Body.x-amazon-apigateway-gateway-responses": {}, "GatewayStage.TracingEnabled": False,
        "GatewayPermission.Principal": "apigateway.amazonaws.com", "HttpApi": None, "Url": None, "UrlPermission": None,
        "UsagePlan": None, "ServerErrors": None, "NewModels": None, "InferenceFunction.TracingConfig": None,
        "Logs.RetentionInDays": "30", f"{LOGGING}.LogGroup": {"Ref": "Logs"},
        f"{LOGGING}.LogFormat": "JSON", f"{LOGGING}.ApplicationLogLevel": "INFO",
        f"{VARIABLES}.DRAGOMAN_TRUST_AUTHORIZER": "false", f"{VARIABLES}.DRAGOMAN_METRICS": "off",
        f"{VARIABLES}.DRAGOMAN_REPOSITORY": "s3://example-models/models", f"{VARIABLES}.AWS_ENDPOINT_URL_S3": "",
        "InferenceFunction.ReservedConcurrentExecutions": None, "InferenceFunction.SnapStart.ApplyOn": "None",
        "ServerlessDeploymentApplication": None, "CodeDeployServiceRole": None, "BatchSource": None,
        "FailedBatches": None, f"{VARIABLES}.DRAGOMAN_BATCH_OUTPUT": "", "InferenceFunctionRole.Policies.1": None,
    }),
    "queue": ({"Batch": "queue", "Timeout": "60"} | ALARMS, {
        "Batches.VisibilityTimeout": "600", "Batches.RedrivePolicy.maxReceiveCount": 5,
        "BatchSource.FunctionName": {"Ref": "InferenceFunctionAliaslive"}, "BatchSource.BatchSize": 100,
        "BatchSource.FunctionResponseTypes": ["ReportBatchItemFailures"], "NewRecords": None,
        f"{VARIABLES}.DRAGOMAN_BATCH_OUTPUT": "s3://example-models/batches/out",
        f"{VARIABLES}.DRAGOMAN_BATCH_INPUT": "",
        f"{RIGHTS}.0.Resource": "arn:aws:s3:::example-models/batches/out/*",
        f"{RIGHTS}.3.Action": ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"],
        "FailedBatchesAlarm.AlarmActions": [TOPIC],
        "FailedBatchesAlarm.MetricName": "ApproximateNumberOfMessagesVisible",
    }),
    "objects in a bucket of their own": (OBJECTS | {"Prefix": "", "WatchBucket": "true"}, {
        "NewRecords.EventPattern.detail": {
            "bucket": {"name": ["example-data"]}, "object": {"key": [{"prefix": "a/b/in/"}]},
        },
        "NewModels.EventPattern.detail.bucket.name": ["example-models"], "Batches": None, "BatchSource": None,
        "BatchAttempts.DestinationConfig.OnFailure.Destination": {"Fn::GetAtt": ["FailedBatches", "Arn"]},
        f"{VARIABLES}.DRAGOMAN_BATCH_INPUT": "s3://example-data/a/b/in",
        f"{RIGHTS}.1.Resource": "arn:aws:s3:::example-data",
        f"{RIGHTS}.3.Resource": "arn:aws:s3:::example-data/a/b/in/*", "FailedBatchesAlarm": None,
    }),
    "queue and objects": ({"Batch": "both"}, {
        "NewRecords.EventPattern.detail.bucket.name": ["example-models"], f"{RIGHTS}.4.Effect": "Allow",
        "NewRecordsPermission.Principal": "events.amazonaws.com", "BatchAttempts.Qualifier": "live",
    }),
    "text": ({"LogFormat": "Text", "LogDays": "7", "AccessLog": "true"}, {
        f"{LOGGING}.LogFormat": "Text", f"{LOGGING}.ApplicationLogLevel": None,
        "Logs.RetentionInDays": "7", f"{VARIABLES}.DRAGOMAN_ACCESS_LOG": "true",
    }),
    "debug": ({"LogLevel": "DEBUG"}, {f"{LOGGING}.ApplicationLogLevel": "DEBUG"}),
    "traced": ({"Tracing": "Active"}, {
        "GatewayStage.TracingEnabled": True, "InferenceFunction.TracingConfig.Mode": "Active",
        "InferenceFunctionRole.ManagedPolicyArns.1": "arn:aws:iam::aws:policy/AWSXrayWriteOnlyAccess",
    }),
    "alarms": (ALARMS, {
        "ServerErrors.Namespace": "AWS/ApiGateway", "ServerErrors.MetricName": "5XXError",
        DIMENSIONS: [{"Name": "ApiName", "Value": "mine"}, {"Name": "Stage", "Value": "Prod"}],
        "ServerErrors.AlarmActions": [TOPIC], "Throttles.MetricName": "Throttles", "Throttles.AlarmActions": [TOPIC],
        "NearTimeout.Metrics.0.Expression": "longest / (60 * 10)", "NearTimeout.Threshold": 90,
        "NearTimeout.Metrics.1.MetricStat.Metric.MetricName": "Duration", "NearTimeout.AlarmActions": [TOPIC],
        "ColdLoads": None,
    }),
    "alarms of a URL, without a topic": (URL | {"Alarms": "on"}, {
        "ServerErrors.Namespace": "AWS/Lambda", "ServerErrors.MetricName": "Url5xxCount",
        "ServerErrors.AlarmActions": [],
        DIMENSIONS: [{"Name": "FunctionName", "Value": {"Ref": "InferenceFunction"}}],
    }),
    "alarms of an HTTP API": (HTTP | ALARMS, {
        "ServerErrors.MetricName": "5xx", f"{DIMENSIONS}.0": {"Name": "ApiId", "Value": {"Ref": "HttpApi"}},
    }),
    "metrics": ({"Metrics": "emf"} | ALARMS | {"ColdLoadSeconds": "5"}, {
        f"{VARIABLES}.DRAGOMAN_METRICS": "emf", "ColdLoads.Threshold": "5", "ColdLoads.AlarmActions": [TOPIC],
        f"{VARIABLES}.POWERTOOLS_SERVICE_NAME": "mine",
    }),
    "metrics alone": ({"Metrics": "emf"}, {f"{VARIABLES}.DRAGOMAN_METRICS": "emf", "ColdLoads": None}),
    "in steps": ({"Deployment": "Canary10Percent5Minutes", "Alarms": "on"}, {
        "ServerlessDeploymentApplication.ComputePlatform": "Lambda",
        "InferenceFunctionDeploymentGroup.DeploymentConfigName": "CodeDeployDefault.LambdaCanary10Percent5Minutes",
        "InferenceFunctionDeploymentGroup.AlarmConfiguration.Alarms": [{"Name": {"Ref": "ServerErrors"}}],
    }),
    "key": (AUTHORIZERS["api-key"], {
        f"{ANY}.security": CALLER, f"{PREFLIGHT}.security": CALLER, f"{SCHEME}.name": "x-api-key",
        f"{SCHEME}.{TYPE}": None, "UsagePlanKey.KeyType": "API_KEY", "UsagePlan.Quota": None,
        "UsagePlan.ApiStages": [{"ApiId": {"Ref": "Gateway"}, "Stage": {"Ref": "GatewayStage"}}],
        f"{VARIABLES}.DRAGOMAN_TRUST_AUTHORIZER": "false",
    }),
    "key with a quota": (AUTHORIZERS["api-key"] | {"Quota": "1000", "QuotaPeriod": "DAY"}, {
        "UsagePlan.Quota": {"Limit": "1000", "Period": "DAY"},
    }),
    "key and pages": (AUTHORIZERS["api-key"] | ORIGINS["cors"], {
        f"{ANY}.security": CALLER, f"{PREFLIGHT}.security": [],
        f"{VARIABLES}.DRAGOMAN_CORS_ORIGINS": "https://a.example,https://b.example",
        "Gateway.Body.x-amazon-apigateway-gateway-responses.DEFAULT_4XX.responseParameters":
            {"gatewayresponse.header.Access-Control-Allow-Origin": "'*'"},
    }),
    "iam": (AUTHORIZERS["iam"], {
        f"{ANY}.security": CALLER, f"{SCHEME}.name": "Authorization", f"{SCHEME}.{TYPE}": "awsSigv4",
        f"{SCHEME}.x-amazon-apigateway-authorizer": None, f"{VARIABLES}.DRAGOMAN_TRUST_AUTHORIZER": "true",
    }),
    "cognito": (COGNITO, {
        f"{ANY}.security": CALLER, f"{SCHEME}.{TYPE}": "cognito_user_pools",
        f"{SCHEME}.x-amazon-apigateway-authorizer.providerARNs": [COGNITO["UserPool"]],
        f"{VARIABLES}.DRAGOMAN_TRUST_AUTHORIZER": "true",
    }),
    "http": (HTTP, {
        "Gateway": None, "GatewayStage": None, "Url": None, "HttpRoute.RouteKey": "$default", "HttpPreflight": None,
        "HttpRootPreflight": None,
        "HttpRoute.AuthorizationType": "NONE", "HttpRoute.AuthorizerId": None, "HttpAuthorizer": None,
        "HttpIntegration.IntegrationUri": {"Ref": "InferenceFunctionAliaslive"},
        "HttpIntegration.PayloadFormatVersion": "2.0",
        "HttpStage.DefaultRouteSettings": {"ThrottlingRateLimit": "50", "ThrottlingBurstLimit": "100"},
        "HttpPermission.FunctionName": {"Ref": "InferenceFunctionAliaslive"},
    }),
    "http with tokens and pages": (HTTP | JWT | ORIGINS["cors"], {
        "HttpRoute.AuthorizationType": "JWT", "HttpRoute.AuthorizerId": {"Ref": "HttpAuthorizer"},
        "HttpAuthorizer.JwtConfiguration": {"Issuer": JWT["JwtIssuer"], "Audience": ["a", "b"]},
        "HttpPreflight.RouteKey": "OPTIONS /{proxy+}", "HttpPreflight.AuthorizationType": "NONE",
        "HttpRootPreflight.RouteKey": "OPTIONS /", "HttpRootPreflight.AuthorizationType": "NONE",
        f"{VARIABLES}.DRAGOMAN_TRUST_AUTHORIZER": "true",
    }),
    "http with signatures": (HTTP | AUTHORIZERS["iam"], {"HttpRoute.AuthorizationType": "AWS_IAM"}),
    "url": (URL | ORIGINS["cors"], {
        "Gateway": None, "HttpApi": None, "Url.AuthType": "NONE", "Url.Qualifier": "live", "Url.Cors": None,
        "UrlPermission.FunctionUrlAuthType": "NONE", "UrlInvocation.InvokedViaFunctionUrl": True,
        f"{VARIABLES}.DRAGOMAN_CORS_ORIGINS": "https://a.example,https://b.example",
    }),
    "url with signatures and pages": (URL | AUTHORIZERS["iam"] | ORIGINS["cors"], {
        "Url.AuthType": "AWS_IAM", "UrlPermission": None, "UrlInvocation": None,
        f"{VARIABLES}.DRAGOMAN_CORS_ORIGINS": "",
        "Url.Cors.AllowOrigins": ["https://a.example", "https://b.example"],
    }),
    "new models": ({"WatchBucket": "true", "Prefix": "a/b"}, {
        "NewModels.EventPattern.detail.object": {"key": [{"prefix": "a/b/"}]},
        "NewModels.Targets.0.Arn": {"Ref": "InferenceFunctionAliaslive"},
        "NewModelsPermission.Principal": "events.amazonaws.com",
    }),
    "new models of a whole bucket": ({"WatchBucket": "true", "Prefix": ""}, {
        "NewModels.EventPattern.detail": {"bucket": {"name": ["example-models"]}},
        f"{VARIABLES}.DRAGOMAN_REPOSITORY": "s3://example-models",
    }),
    "provisioned": ({"Initialization": "provisioned-concurrency", "Preload": "*", "Instances": "2"}, {
        "InferenceFunctionAliaslive.ProvisionedConcurrencyConfig.ProvisionedConcurrentExecutions": "2",
    }),
    "reserved": ({"Concurrency": "5"}, {"InferenceFunction.ReservedConcurrentExecutions": "5"}),
    "snapshot": ({"Initialization": "snap-start", "Preload": "*"}, {
        "InferenceFunction.SnapStart.ApplyOn": "PublishedVersions",
    }),
    "tokens": (TOKENS, {
        f"{VARIABLES}.DRAGOMAN_AUTH": "jwt",
        f"{VARIABLES}.DRAGOMAN_JWT_ISSUER": TOKENS["JwtIssuer"],
        f"{VARIABLES}.DRAGOMAN_JWT_AUDIENCE": TOKENS["JwtAudience"],
        f"{VARIABLES}.DRAGOMAN_JWT_JWKS": TOKENS["JwtKeys"],
    }),
    "local store": ({"S3Endpoint": "http://172.17.0.1:9000"}, {f"{VARIABLES}.AWS_ENDPOINT_URL_S3": "http://172.17.0.1:9000"}),
}  # fmt: skip
REFUSED = {
    "a quota of nobody": ({"Quota": "5"}, "needs Authorizer api-key"),
    "steps without an alarm": ({"Deployment": "Linear10PercentEvery1Minute"}, "needs Alarms"),
    "cognito without a pool": ({"Authorizer": "cognito"}, "needs UserPool"),
    "jwt without an issuer": (HTTP | JWT | {"JwtIssuer": ""}, "needs JwtIssuer"),
    "jwt without an audience": (HTTP | JWT | {"JwtAudience": ""}, "needs JwtAudience"),
    "snapshot without models": ({"Initialization": "snap-start"}, "name the models"),
    "batches among all models": ({"Batch": "queue", "Prefix": ""}, "need a Prefix for the models"),
    "batches among the models": ({"Batch": "both", "BatchPrefix": "models"}, "need a BatchPrefix"),
    "batches in the same bucket, named": (
        {"Batch": "objects", "BatchBucket": "example-models", "BatchPrefix": "models"},
        "need a BatchPrefix",
    ),
    "keys without lines": ({"Auth": "keys"}, "needs the lines of Keys"),
    "either without lines": (TOKENS | {"Auth": "both"}, "needs the lines of Keys"),
    "tokens without an audience": (TOKENS | {"JwtAudience": ""}, "needs JwtIssuer and JwtAudience"),
    "tokens without keys": (TOKENS | {"JwtKeys": ""}, "needs JwtKeys"),
}
IMAGE = {"Image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/dragoman:1"}
STREAMED: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "default": ({}, {
        "GatewayStage.MethodSettings.0.ThrottlingRateLimit": "50", "Url": None, "ServerErrors": None,
        "Gateway.Body.x-amazon-apigateway-gateway-responses": {}, f"{LOGGING}.ApplicationLogLevel": "INFO",
        "InferenceFunction.EphemeralStorage.Size": "512", "InferenceFunction.ReservedConcurrentExecutions": None,
    }),
    "guarded": (
        {"ThrottleRate": "5", "ThrottleBurst": "7", "Concurrency": "3", "Storage": "2048", "Control": "off"}, {
            "GatewayStage.MethodSettings.0.ThrottlingRateLimit": "5",
            "GatewayStage.MethodSettings.0.ThrottlingBurstLimit": "7",
            "InferenceFunction.ReservedConcurrentExecutions": "3", "InferenceFunction.EphemeralStorage.Size": "2048",
            f"{VARIABLES}.DRAGOMAN_CONTROL": "off",
        },
    ),
    "watched": ({"Metrics": "emf"} | ALARMS | ORIGINS["cors"], {
        "ServerErrors.MetricName": "5XXError", "Throttles.AlarmActions": [TOPIC], "ColdLoads.Threshold": "30",
        "NearTimeout.Metrics.0.Expression": "longest / (60 * 10)", f"{VARIABLES}.DRAGOMAN_METRICS": "emf",
        f"{VARIABLES}.DRAGOMAN_CORS_ORIGINS": ORIGINS["cors"]["CorsOrigins"],
        "Gateway.Body.x-amazon-apigateway-gateway-responses.DEFAULT_5XX.responseParameters":
            {"gatewayresponse.header.Access-Control-Allow-Origin": "'*'"},
    }),
    "url with alarms": (URL | {"Alarms": "on"}, {
        "Gateway": None, "Url.InvokeMode": "RESPONSE_STREAM", "ServerErrors.MetricName": "Url5xxCount",
        DIMENSIONS: [{"Name": "FunctionName", "Value": {"Ref": "InferenceFunction"}}], "ColdLoads": None,
    }),
}  # fmt: skip
"""Variants of template-streaming.yaml."""
GATEWAYS = {
    f"{api}, {authorizer}, {origins}": {"Api": api} | AUTHORIZERS[authorizer] | ORIGINS[origins]
    for api, authorizer, origins in itertools.product(POSSIBLE, AUTHORIZERS, ORIGINS)
}


def expanded(template: Path, asked: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Returns the resources of each set of parameters, and what the rules and cfn-lint have against it."""
    done = subprocess.run(
        [environment("sam") / "python", ROOT / "tests/e2e/expansion.py", template],
        input=json.dumps(asked),
        env={**os.environ, "AWS_DEFAULT_REGION": "us-east-1", "SAM_CLI_TELEMETRY": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def expansions() -> dict[str, Any]:
    asked = GATEWAYS | {name: parameters for name, (parameters, _) in (VARIANTS | REFUSED).items()}
    return expanded(TEMPLATE, {name: BUCKET | parameters for name, parameters in asked.items()})


@pytest.fixture(scope="module")
def streamed() -> dict[str, Any]:
    asked = {name: BUCKET | IMAGE | parameters for name, (parameters, _) in STREAMED.items()}
    return expanded(ROOT / "template-streaming.yaml", asked)


def at(resources: dict[str, Any], way: str) -> Any:
    """Returns a property, None for one that is not there."""
    name, _, way = way.partition(".")
    found = resources.get(name)
    if found is None or not way:
        return found
    found = found["Properties"]
    while way and found is not None:
        if isinstance(found, list):
            step, _, way = way.partition(".")
            found = found[int(step)] if int(step) < len(found) else None
        else:
            step = next((key for key in sorted(found, key=len, reverse=True) if f"{way}.".startswith(f"{key}.")), "")
            found, way = found.get(step), way.removeprefix(step).removeprefix(".")
    return found


def has_properties(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Asserts that an expansion was accepted, and has those properties."""
    assert (found["refused"], found["lint"]) == ([], [])
    assert {way: at(found["resources"], way) for way in expected} == expected


@pytest.mark.parametrize("name", VARIANTS)
def test_a_parameter_makes_what_it_says(expansions: dict[str, Any], name: str) -> None:
    """The resources are there with their properties, and cfn-lint has nothing against them."""
    has_properties(expansions[name], VARIANTS[name][1])


@pytest.mark.parametrize("name", STREAMED)
def test_a_parameter_of_the_streaming_template_makes_what_it_says(streamed: dict[str, Any], name: str) -> None:
    """It has the guards and the alarms of the usual one."""
    has_properties(streamed[name], STREAMED[name][1])


@pytest.mark.parametrize("name", REFUSED)
def test_parameters_that_contradict_each_other_are_refused(expansions: dict[str, Any], name: str) -> None:
    """A rule says what is missing, before anything is made."""
    assert [REFUSED[name][1] in text for text in expansions[name]["refused"]] == [True]


@pytest.mark.parametrize("name", GATEWAYS)
def test_every_gateway_has_the_authorizers_that_it_can(expansions: dict[str, Any], name: str) -> None:
    """What one has is made whole: nothing refers to what is not made. What it has not is refused."""
    api, authorizer, _ = name.split(", ")
    found = expansions[name]
    assert (found["refused"] == []) is (authorizer in POSSIBLE[api])
    if not found["refused"]:
        assert found["lint"] == []
        made = [kind for kind in ("Gateway", "HttpApi", "Url") if kind in found["resources"]]
        assert made == [{"rest-api": "Gateway", "http-api": "HttpApi", "function-url": "Url"}[api]]
        assert made[0] in json.dumps(found["outputs"]["Url"])

"""The Lambda function `dragoman.aws.lambda_handler`; see handler.aws."""

from handler.aws import lambda_handler

__all__ = ["lambda_handler"]

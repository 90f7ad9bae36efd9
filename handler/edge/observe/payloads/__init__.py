"""The payload log: requests and answers of inferences as KServe's CloudEvents. Imported where it is on."""

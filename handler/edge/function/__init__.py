"""What AWS Lambda hands to a function and gets back: events and the documents that answer them."""

"""`--optimize`: a model in the form that loads fastest, if it then answers as before."""

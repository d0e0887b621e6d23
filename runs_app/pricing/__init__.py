"""The cost of calls: the tokens of a request, the price of a token, and the sources of both."""

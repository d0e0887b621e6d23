"""The batch APIs of providers, each in one form: submit, look, cancel, read. Only the gateway is asked what to say."""

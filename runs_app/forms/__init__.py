"""Forms for designs, reasons, limits, endpoints and models. Status is never a field."""

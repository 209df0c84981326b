"""The page at ``/docs``: made from the OpenAPI document, with nothing fetched from elsewhere."""

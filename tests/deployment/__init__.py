"""What surrounds the service: chart, alerts, image, generated documents. Needs no network."""

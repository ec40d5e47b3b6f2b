"""Tests of all around the service: chart, alerts, image, generated documents. They need no network."""

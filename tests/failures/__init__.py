"""Failures as the person on call sees them: `catalogue.py` makes each, `bed.py` has what they are made on."""

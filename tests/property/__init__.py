"""Properties of all input, shown by examples that Hypothesis chooses; HYPOTHESIS_PROFILE=nightly takes more."""

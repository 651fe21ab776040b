"""What is known of labels: frequency, propensity, weights, and the trees over them."""

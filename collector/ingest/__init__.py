"""Generation intake: logged requests and logprobs become arrays of features."""

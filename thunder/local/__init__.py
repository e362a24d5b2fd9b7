"""The real stack on this machine: the embedded AWS, the CDK that deploys to it, and what keeps both honest."""

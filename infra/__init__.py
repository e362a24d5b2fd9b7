"""The CDK application: configuration, assets, constructs, stacks. `config`, `assets` and `routes` need no CDK."""

"""`fusewire doctor` and `fusewire init`: what can be seen of a tier, what cannot, and what to do.

`manifest` reads Kubernetes YAML, `manifest_checks` judges it; `examine` looks at a page, `advice`
says what to do about it, `draft` writes a first configuration.
"""

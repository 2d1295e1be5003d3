"""The recorded tier and the incident that `fusewire demo` plays."""

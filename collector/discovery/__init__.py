"""Discovery: which targets a tier has, found where the operator already keeps that list.

`found` is what every kind yields, `roster` decides who is a target (and for how long a vanished one
stays), `settings` lists the kinds, and the other files are one kind each. Static targets need none
of it: they stand in the configuration.
"""

"""What a verdict is made of: each file looks at one thing, as a pure function of the facts, and says opinions."""

"""What storage sessions and their connections do, seen from outside, ten times a second."""

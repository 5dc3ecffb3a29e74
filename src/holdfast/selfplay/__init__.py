"""Self-play: one learner a role, frozen opponents, and honest measures of both."""

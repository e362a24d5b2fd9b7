"""Clock, randomness and thread pool under the test's hand: those of the testing kit."""

from thunderagent.testing.fakes import START, FakeClock, FakeRandomness, InlineThreads, Recorder, ScriptedThreads

__all__ = ["START", "FakeClock", "FakeRandomness", "InlineThreads", "Recorder", "ScriptedThreads"]

"""The instructor's side: release, check and grade the notebooks. Learners need none of it."""

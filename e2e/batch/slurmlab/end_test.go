package slurmlab

import "testing"

// end ends the lab of a test, with the logs where that failed.
func (l *Lab) end(t *testing.T) {
	t.Helper()
	if t.Failed() {
		t.Logf("slurmctld:\n%s\nslurmd:\n%s\nagent:\n%s", l.Log("slurmctld"), l.Log("slurmd"), l.host.AgentLog())
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

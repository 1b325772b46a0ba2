package jupyterhub

import (
	"os"
	"os/exec"
	"testing"
)

// TestJupyterHubPorts: the hub takes no port from a job that another user has, also where that user has it later.
func TestJupyterHubPorts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, for ports of several users")
	}
	cmd := exec.CommandContext(t.Context(), "/usr/bin/env", "python3", "-B", "ports_test.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH=.")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

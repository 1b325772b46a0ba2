package slurm

import (
	"os"
	"strings"
	"testing"
)

// The guide has the script that e2e/batch/slurmlab tries.
func TestGuidesScript(t *testing.T) {
	guide, err := os.ReadFile("../docs/guide/slurm.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(guide), "```lua\n"+CLIFilter+"```\n") {
		t.Error("docs/guide/slurm.md does not have cli_filter.lua as it is")
	}
}

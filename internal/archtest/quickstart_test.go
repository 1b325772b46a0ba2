package archtest

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestQuickstartReadsAccounting runs what scripts/quickstart-slurm reads of sacct on records as Slurm has them, also of
// a job that was queued again.
func TestQuickstartReadsAccounting(t *testing.T) {
	body := regexp.MustCompile(`(?ms)^batch_memory\(\) \{.*?^\}`).FindString(read(t, "scripts/quickstart-slurm"))
	if body == "" {
		t.Fatal("scripts/quickstart-slurm has no batch_memory")
	}
	for name, c := range map[string]struct{ records, want string }{
		"once": {"1|COMPLETED|0:0|6|00:04.030|\n1.batch|COMPLETED|0:0|6|00:04.030|145892K\n", "145892"},
		"queued again, with two records": {
			"1|REQUEUED|0:0|2|00:00.010|\n1.batch|CANCELLED|0:15|2|00:00.010|\n1|COMPLETED|0:0|6|00:04.030|\n1.batch|COMPLETED|0:0|6|00:04.030|145892K\n", "145892"},
		"queued again, both with memory": {"1.batch|CANCELLED|0:15|2|00:00.010|5340K\n1.batch|COMPLETED|0:0|6|00:04.030|142.50M\n1.0|COMPLETED|0:0|1|0|9G\n", "145920"},
		"none":                           {"1|COMPLETED|0:0|6|00:04.030|\n1.batch|COMPLETED|0:0|6|00:04.030|\n", "0"},
	} {
		cmd := exec.Command("bash", "-euc", body+"\n[ $(batch_memory <\"$0\") -eq \"$1\" ]", "/dev/stdin", c.want)
		cmd.Stdin = strings.NewReader(c.records)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: not %s: %v\n%s", name, c.want, err, out)
		}
	}
}

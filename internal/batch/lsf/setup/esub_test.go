package setup

import (
	"slices"
	"strings"
	"testing"

	"github.com/grange-project/grange/internal/farm"
)

// TestEsubRefuses: what LSF runs as the user on the host beside a job, by bsub, bmod or brestart.
func TestEsubRefuses(t *testing.T) {
	queues := []string{"vm", "night"}
	for name, lines := range map[string][]string{
		"bsub -E":  {`LSB_SUB_QUEUE="vm"`, `LSB_SUB_PRE_EXEC="touch /tmp/host"`},
		"bsub -Ep": {`LSB_SUB_QUEUE="night"`, `LSB_SUB3_POST_EXEC="touch /tmp/host"`},
		"bsub -L":  {`LSB_SUB_QUEUE="vm"`, `LSB_SUB_LOGIN_SHELL="/home/ann/shell"`},
		"bsub -k": {`LSB_SUB_QUEUE="vm"`, `LSB_SUB_CHKPNT_DIR="/home/ann/c method=mine"`,
			"LSB_SUB_CHKPNT_PERIOD=60"},
		"bsub -k, first period":     {`LSB_SUB_QUEUE="vm"`, "LSB_SUB3_INIT_CHKPNT_PERIOD=60"},
		"bsub -rnc":                 {`LSB_SUB_QUEUE="vm"`, `LSB_SUB3_RESIZE_NOTIFY_CMD="/home/ann/x"`},
		"bsub -IS":                  {`LSB_SUB_QUEUE="vm"`, "LSB_SUB3_INTERACTIVE_SSH=Y"},
		"bsub -IX":                  {`LSB_SUB_QUEUE="vm"`, "LSB_SUB3_XJOB_SSH=Y"},
		"brestart":                  {`LSB_SUB_QUEUE="vm"`, "LSB_SUB_RESTART=Y"},
		"bmod -E of a waiting job":  {"LSB_SUB_MODIFY=Y", `LSB_SUB_PRE_EXEC="touch /tmp/host"`},
		"bmod -Ep into a VM queue":  {"LSB_SUB_MODIFY=Y", `LSB_SUB_QUEUE="vm"`, `LSB_SUB3_POST_EXEC="x"`},
		"one of several queues":     {`LSB_SUB_QUEUE="normal vm"`, `LSB_SUB_PRE_EXEC="x"`},
		"the default queue":         {`LSB_SUB_PRE_EXEC="x"`},
		"a later family of options": {`LSB_SUB_QUEUE="vm"`, `LSB_SUB6_PRE_EXEC="x"`},
	} {
		s, err := Esub(strings.NewReader(strings.Join(append(lines, `LSB_SUB_COMMAND_LINE="true"`), "\n")), nil, queues)
		if !farm.IsCode(err, CodeOnHost) || len(s.Modify)+len(s.Env) > 0 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	for name, lines := range map[string][]string{
		"another queue": {`LSB_SUB_QUEUE="normal"`, `LSB_SUB_PRE_EXEC="x"`},
		"taken back":    {`LSB_SUB_QUEUE="vm"`, `LSB_SUB_PRE_EXEC="SUB_RESET"`, "LSB_SUB_MODIFY=Y"},
		"nothing of the kind": {`LSB_SUB_QUEUE="vm"`, `LSB_SUB_RES_REQ="mem>1"`, "LSB_SUB_INTERACTIVE=Y",
			"LSB_SUB_RERUNNABLE=Y", `LSB_SUB_JOB_NAME="PRE_EXEC"`},
		"a name that ends so":   {`LSB_SUB_QUEUE="vm"`, `LSB_SUB_NOPRE_EXECS="x"`},
		"an empty one, by bsub": {`LSB_SUB_QUEUE="vm"`, `LSB_SUB_PRE_EXEC=""`},
	} {
		if _, err := Esub(strings.NewReader(strings.Join(lines, "\n")), nil, queues); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEsubOfSeveralQueues: LSF chooses one of the queues, and it may be ours.
func TestEsubOfSeveralQueues(t *testing.T) {
	s, err := Esub(strings.NewReader("LSB_SUB_QUEUE=\"normal vm\"\nLSB_SUB_COMMAND_LINE=\"a 'b'\"\n"), nil,
		[]string{"vm"})
	if err != nil || !slices.Equal(s.Modify, []string{`LSB_SUB_COMMAND_LINE="a '\\''b'\\''"`}) {
		t.Errorf("%q, %v", s.Modify, err)
	}
}

// TestEsubImageOnTheHost: an image for a queue without VMs would be dropped without a word.
func TestEsubImageOnTheHost(t *testing.T) {
	for queue, refused := range map[string]bool{"normal": true, "normal vm": false, "vm": false} {
		s, err := Esub(strings.NewReader("LSB_SUB_QUEUE=\""+queue+"\"\nLSB_SUB_COMMAND_LINE=\"true\"\n"),
			[]string{"sl9"}, []string{"vm"})
		if farm.IsCode(err, farm.CodeUsage) != refused || refused == (len(s.Env) > 0) {
			t.Errorf("queue %s: %+v, %v", queue, s, err)
		}
	}
	if _, err := Esub(strings.NewReader("LSB_SUB_QUEUE=\"normal\"\n"), nil, []string{"vm"}); err != nil {
		t.Errorf("without an image: %v", err)
	}
}

package steps

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/guest"
)

// Placeholder is the command that Slurm is told of. `grange exec` takes its place, and runs the step's own command in
// the VM. Should anything ever start the task without it, this is what runs.
const Placeholder = "/bin/false"

// variable holds the step, in parts: a single one may not be longer than 128 KiB (MAX_ARG_STRLEN).
const variable, partSize, maxParts = "GRANGE_STEP_", 96 << 10, 16

// Task is a step as its tasks get it: what the VM asked for, which is data, and the host's word on what a task may see
// of the host.
type Task struct {
	guest.Step
	Places map[string]Place `json:"places"` // by where they are in the VM
}

// Pack makes the variables that bring a step to its tasks.
func (s Task) Pack() ([]string, error) {
	s.Encode()
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	coded := base64.StdEncoding.EncodeToString(text)
	var env []string
	for i := 0; len(coded) > 0; i++ {
		if i == maxParts {
			return nil, fmt.Errorf("the command and its environment are longer than %d KiB", maxParts*partSize*3/4>>10)
		}
		n := min(len(coded), partSize)
		env = append(env, variable+strconv.Itoa(i)+"="+coded[:n])
		coded = coded[n:]
	}
	return env, nil
}

// Unpack finds in a task's command and environment what step it belongs to; ok is false where it belongs to none. The
// step's environment comes back with what Slurm has set for this task.
func Unpack(argv, env []string) (s Task, ok bool, err error) {
	if len(argv) != 1 || argv[0] != Placeholder {
		return s, false, nil
	}
	parts := map[string]string{}
	var own []string
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, variable):
			parts[name] = value
		case strings.HasPrefix(name, "SLURM_") && !strings.HasPrefix(name, "SLURM_SPANK_"),
			strings.HasPrefix(name, "SLURMD_"), strings.HasPrefix(name, "PMI_"), name == "CUDA_VISIBLE_DEVICES":
			own = append(own, kv)
		}
	}
	coded := ""
	for i := range len(parts) {
		coded += parts[variable+strconv.Itoa(i)]
	}
	if coded == "" {
		return s, false, nil
	}
	text, err := base64.StdEncoding.DecodeString(coded)
	if err == nil {
		err = json.Unmarshal(text, &s)
		s.Decode()
	}
	if err == nil && (len(s.Argv) == 0 || !filepath.IsAbs(s.Dir)) {
		err = fmt.Errorf("no command or no directory")
	}
	if err != nil {
		return s, false, fmt.Errorf("the step cannot be read: %w", err)
	}
	s.Env = merge(s.Env, own)
	return s, true, nil
}

// merge is env with over on top.
func merge(env, over []string) []string {
	set := map[string]bool{}
	for _, kv := range over {
		name, _, _ := strings.Cut(kv, "=")
		set[name] = true
	}
	var out []string
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); !set[name] {
			out = append(out, kv)
		}
	}
	return append(out, over...)
}

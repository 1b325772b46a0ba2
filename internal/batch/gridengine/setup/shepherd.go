package setup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/grange-project/grange/internal/allotment"
)

// PrepareShepherd changes what sge_shepherd is told of a job before it starts: where the queue's starter is grange's,
// the limit of address space (h_vmem) is kept under another name. The wrapper is a Go program, which reserves a
// gigabyte of addresses that it never uses and would not start within a small limit; what the limit means, the VM's
// memory, is bounded by the agent and enforced by execd, which adds up what the job's processes really use.
func PrepareShepherd(dir string) error {
	path := filepath.Join(dir, "config")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	changed, err := withoutLimit(text)
	if err != nil || changed == nil {
		return err
	}
	// In place: the file keeps its owner, which is who may have written it.
	return os.WriteFile(path, changed, 0o644)
}

// withoutLimit returns nil where nothing has to be changed.
func withoutLimit(text []byte) ([]byte, error) {
	var out bytes.Buffer
	starter, limit := "", ""
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(string(line), "\n"), "=")
		switch key {
		case "starter_method":
			if starter != "" {
				return nil, errors.New("starter_method comes twice in the configuration")
			}
			starter = value
		case "h_vmem", "s_vmem":
			if limit != "" && key == "h_vmem" {
				// a path of the user's with a line end
				return nil, errors.New("h_vmem comes twice in the configuration")
			}
			if key == "h_vmem" {
				limit = value
				fmt.Fprintf(&out, "h_vmem=INFINITY\n%s=%s\n", allotment.HeldMemory, value)
			} else {
				out.WriteString("s_vmem=INFINITY\n")
			}
			continue
		case allotment.HeldMemory:
			return nil, errors.New(allotment.HeldMemory + " is in the configuration already")
		}
		out.Write(line)
	}
	if filepath.Base(starter) != StarterLink || limit == "" || strings.EqualFold(limit, "infinity") {
		return nil, nil
	}
	return out.Bytes(), nil
}

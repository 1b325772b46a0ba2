package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// difference is a property of the program's start that is another one in the VM.
type difference struct {
	property, host, vm string
	listed             string // property of the row that lists it
}

// absent is the value of a property that a side does not have.
const absent = "absent"

// readReport reads what the program wrote.
func readReport(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	seen := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok {
			return nil, fmt.Errorf("report: %q", line)
		}
		for n := 2; ; n++ { // a variable may be there twice
			if _, twice := seen[key]; !twice {
				break
			}
			key = fmt.Sprintf("%s#%d", strings.Split(key, "#")[0], n)
		}
		seen[key] = anyNumber(key, value)
	}
	if len(seen) == 0 {
		return nil, errors.New("the report is empty")
	}
	return seen, nil
}

// ownNumbers are variables that hold a number of the job itself, which no other job has.
var ownNumbers = []string{"SLURM_JOBID", "SLURM_JOB_ID", "SLURM_TASK_PID", "SLURM_SRUN_COMM_PORT",
	"SLURM_STEP_LAUNCHER_PORT"}

// anyNumber puts the same word in the place of each number of a job itself.
func anyNumber(key, value string) string {
	name, ok := strings.CutPrefix(key, "env.")
	if !ok || !slices.Contains(ownNumbers, name) || value == "" || strings.Trim(value, "0123456789") != "" {
		return value
	}
	return "a number"
}

// differences compares two reports.
func differences(system string, host, vm map[string]string, listed []row) (found []difference) {
	keys := maps.Clone(host)
	maps.Copy(keys, vm)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		d := difference{property: key, host: value(host, key), vm: value(vm, key)}
		if d.host == d.vm {
			continue
		}
		for _, r := range listed {
			if r.covers(system, d) {
				d.listed = r.property
				break
			}
		}
		found = append(found, d)
	}
	return found
}

func value(seen map[string]string, key string) string {
	if v, ok := seen[key]; ok {
		return v
	}
	return absent
}

// row is a line of the list of differences.
type row struct {
	property, systems, host, vm string
	reason                      string
}

// listHead is the head of the table of differences in the page.
const listHead = "| property | systems | host | VM | reason |"

// readListed reads the differences that the page lists.
func readListed(page string) (rows []row, err error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	_, table, ok := strings.Cut(string(text), listHead+"\n")
	if !ok {
		return nil, fmt.Errorf("%s has no table %q", page, listHead)
	}
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if strings.HasPrefix(line, "|-") {
			continue
		}
		if len(cells) != 5 {
			return nil, fmt.Errorf("%s: not five cells: %s", page, line)
		}
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		if cells[4] == "" {
			return nil, fmt.Errorf("%s: no reason: %s", page, line)
		}
		rows = append(rows, row{cells[0], cells[1], cells[2], cells[3], cells[4]})
	}
	return rows, nil
}

// covers reports whether the row lists a difference. Properties, systems and values are lists of patterns in which "*"
// stands for any text.
func (r row) covers(system string, d difference) bool {
	return anyOf(r.systems, system) && anyOf(r.property, d.property) && anyOf(r.host, d.host) && anyOf(r.vm, d.vm)
}

// anyOf reports whether one of the patterns, which commas with a blank separate, matches the text.
func anyOf(patterns, text string) bool {
	return slices.ContainsFunc(strings.Split(patterns, ", "), func(p string) bool { return match(p, text) })
}

func match(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, parts[0])
	for _, p := range parts[1 : len(parts)-1] {
		if _, after, found := strings.Cut(rest, p); found {
			rest = after
			continue
		}
		return false
	}
	return ok && strings.HasSuffix(rest, parts[len(parts)-1])
}

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
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
		key, value = withoutNumbers(key, value)
		for n := 2; ; n++ { // a variable may be there twice
			if _, twice := seen[key]; !twice {
				break
			}
			key = fmt.Sprintf("%s#%d", strings.Split(key, "#")[0], n)
		}
		seen[key] = value
	}
	if len(seen) == 0 {
		return nil, errors.New("the report is empty")
	}
	return seen, nil
}

// own are the parts of properties that no two jobs have alike: numbers, and what is named by them.
var own = []struct{ property, part *regexp.Regexp }{
	{regexp.MustCompile(`^env\.(SLURM_JOBID|SLURM_JOB_ID|SLURM_TASK_PID|SLURM_SRUN_COMM_PORT|SLURM_STEP_LAUNCHER_PORT)$`),
		regexp.MustCompile(`^\d+$`)},
	{regexp.MustCompile(`^env\.(JOB_ID|JOB_SCRIPT|SGE_JOB_SPOOL_DIR)$`), regexp.MustCompile(`\b\d+(\.1)?$`)},
	// Grid Engine's directory for temporary files.
	{regexp.MustCompile(`^env\.(PATH|TMP|TMPDIR)$`), regexp.MustCompile(`\b\d+\.1\.(vm|metal)\.q\b`)},
	// The group by which Grid Engine tells the job's processes.
	{regexp.MustCompile(`^groups$`), regexp.MustCompile(`\b\d{6,}$`)},
	{regexp.MustCompile(`^env\.(_CONDOR_.*|(APPTAINER|SINGULARITY)_CACHEDIR)$`), regexp.MustCompile(`\bdir_\d+\b`)},
	{regexp.MustCompile(`^env\._CONDOR_SLOT$`), regexp.MustCompile(`\d+_\d+$`)},
	{condorAncestor, regexp.MustCompile(`^\d+:\d+:\d+$`)},
}

// condorAncestor are variables that have a number in their name, too.
var condorAncestor = regexp.MustCompile(`^env\._CONDOR_ANCESTOR_\d+$`)

// withoutNumbers puts the same word in the place of what is a job's own.
func withoutNumbers(key, value string) (string, string) {
	const number = "NUMBER"
	for _, o := range own {
		if o.property.MatchString(key) {
			value = o.part.ReplaceAllString(value, number)
		}
	}
	if condorAncestor.MatchString(key) {
		key = "env._CONDOR_ANCESTOR_" + number
	}
	return key, value
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

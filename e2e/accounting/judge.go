package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/usage"
)

// judge holds what the server has against what was run, and against the kernel.
func (s *site) judge(f *figures) error {
	month := usage.MonthOf(time.Now())
	metal, err := s.slurmEnded()
	if err != nil {
		return err
	}
	var records []api.Usage
	err = s.await(5*time.Minute, func() (err error) { // the server asks Slurm once a minute
		if records, err = s.exported(month); err != nil {
			return err
		}
		return errors.Join(s.complete(records), missingMetal(records, metal))
	})
	if err != nil {
		fmt.Println("  not all records came:", err)
	}
	seen := map[string]bool{}
	of := map[string][]api.Usage{}
	for _, u := range records {
		key := u.Job
		if u.Kind == api.UsageVM {
			key = u.VM
			f.Intervals++
		}
		if seen[u.ID] {
			f.Doubled++
			fmt.Printf("  doubled: record %s\n", u.ID)
		}
		seen[u.ID] = true
		of[key] = append(of[key], u)
	}
	if f.Outside, err = s.outside(); err != nil {
		return err
	}
	s.compare(of, f)
	compareMetal(records, metal, f)
	return s.addsUp(month, records)
}

// outside is how many records count for nobody.
func (s *site) outside() (n int, err error) {
	text, err := s.grange("usage", "check", "--json")
	var found struct{ Hosts []struct{ Records int } }
	if err == nil {
		err = json.Unmarshal([]byte(text), &found)
	}
	for _, h := range found.Hosts {
		n += h.Records
	}
	if n > 0 {
		fmt.Println("  records count for nobody:", text)
	}
	return n, err
}

// complete reports whether all VMs that have had their job have a record.
func (s *site) complete(records []api.Usage) error {
	have := map[string]int{}
	for _, u := range records {
		key := u.Job
		if u.Kind == api.UsageVM {
			key = u.VM
		}
		have[key]++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, stints := range s.stints {
		if least, _ := bounds(stints); have[key] < least {
			return fmt.Errorf("%s has %d records, and not %d", key, have[key], least)
		}
	}
	return nil
}

// bounds are how many records a job or a cloud VM must have, and may have: a VM whose guest never had the job may have
// been taken for one that never ran.
func bounds(stints []*stint) (least, most int) {
	for _, t := range stints {
		if t.mustHave {
			least++
		}
		most++
	}
	return least, most
}

// compare counts records, and holds their CPU time against the kernel's counters, VM by VM: what is too much in one
// does not make up for what is too little in another.
func (s *site) compare(of map[string][]api.Usage, f *figures) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all, unseen time.Duration
	var orderly, killed share
	for key, stints := range s.stints {
		var cpu, kernel time.Duration
		n, unwatched, said, wasKilled := 0, false, false, false
		for _, u := range of[key] {
			cpu += time.Duration(cpuOf(u) * float64(time.Second))
			if u.Ended != api.EndedCut {
				n++
			}
			said = said || u.Ended == api.EndedUnseen
		}
		for _, t := range stints {
			unwatched, wasKilled = unwatched || t.unwatched, wasKilled || t.killed
			if t.mustHave || n == len(stints) || s.recorded(t, of[key]) {
				kernel += t.used
			}
		}
		least, most := bounds(stints)
		f.Lost += max(least-n, 0)
		f.Doubled += max(n-most, 0)
		if n < least || n > most {
			fmt.Printf("  %s has %d records, and not %d to %d\n", key, n, least, most)
		}
		all += kernel
		d := (cpu - kernel).Abs()
		switch {
		case unwatched && said:
			unseen += d
			continue
		case wasKilled:
			killed.add(d, kernel)
		default:
			orderly.add(d, kernel)
		}
		if d > 5*time.Millisecond && !wasKilled {
			fmt.Printf("  %s: %v counted, the kernel says %v\n", key, cpu, kernel)
		}
	}
	f.CPUError, f.CPUKilled, f.CPUUnseen = orderly.part(), killed.part(), share{unseen, all}.part()
}

// share is how much of a time is wrong.
type share struct{ off, of time.Duration }

func (s *share) add(off, of time.Duration) { s.off, s.of = s.off+off, s.of+of }

func (s share) part() float64 { return math.Round(float64(s.off)/max(float64(s.of), 1)*1e6) / 1e6 }

// recorded reports whether a record is of a machine of these.
func (s *site) recorded(t *stint, records []api.Usage) bool {
	return slices.ContainsFunc(records, func(u api.Usage) bool { return t.machines[u.VM] })
}

func (s *site) exported(month string) (records []api.Usage, err error) {
	text, err := s.grange("usage", "export", "--format", "json", "--month", month)
	if err != nil {
		return nil, err
	}
	lines := json.NewDecoder(strings.NewReader(text))
	for lines.More() {
		var u api.Usage
		if err := lines.Decode(&u); err != nil {
			return nil, err
		}
		records = append(records, u)
	}
	return records, nil
}

// total is what one way of reading the month says.
type total struct {
	records   int
	wall, cpu float64 // seconds
}

// cpuOf is the CPU time of a record; 0 where it is not known.
func cpuOf(u api.Usage) float64 {
	if u.CPU == nil {
		return 0
	}
	return *u.CPU
}

// addsUp reads the month by each way, and holds all against the records.
func (s *site) addsUp(month string, records []api.Usage) error {
	var exact, whole total
	for _, u := range records {
		exact.add(u.Wall, cpuOf(u))
		whole.add(float64(usage.Seconds(u.Wall)), float64(usage.Seconds(cpuOf(u))))
	}
	var errs []error
	check := func(name string, got total, err error, want total, slack float64) {
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		case got.records != want.records || math.Abs(got.wall-want.wall) > slack || math.Abs(got.cpu-want.cpu) > slack:
			errs = append(errs, fmt.Errorf("%s adds up to %+v, the records to %+v", name, got, want))
		}
	}
	perRecord := 2e-6 * float64(len(records)+1) // sums are of microseconds
	got, err := s.summed(month)
	check("grange usage", got, err, exact, perRecord)
	got, err = s.table(month)
	check("CSV", got, err, exact, perRecord)
	got, err = s.apel(month)
	check("APEL", got, err, whole, 0.5)
	return errors.Join(errs...)
}

func (t *total) add(wall, cpu float64) {
	t.records, t.wall, t.cpu = t.records+1, t.wall+wall, t.cpu+cpu
}

func (s *site) summed(month string) (t total, err error) {
	text, err := s.grange("usage", "--json", "--by", "kind", "--from", month, "--to", month)
	var sum fleet.UsageSummary
	if err == nil {
		err = json.Unmarshal([]byte(text), &sum)
	}
	for _, l := range sum.Lines {
		t.records += l.Records
		t.wall, t.cpu = t.wall+l.WallHours*3600, t.cpu+l.CPUHours*3600
	}
	return t, err
}

func (s *site) table(month string) (t total, err error) {
	text, err := s.grange("usage", "export", "--format", "csv", "--month", month)
	if err != nil {
		return t, err
	}
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(lines) == 0 {
		return t, fmt.Errorf("%d lines: %w", len(lines), err)
	}
	at := map[string]int{}
	for i, name := range lines[0] {
		at[name] = i
	}
	for _, l := range lines[1:] {
		wall, err1 := strconv.ParseFloat(l[at["wall_seconds"]], 64)
		cpu, err2 := strconv.ParseFloat(cmp.Or(l[at["cpu_seconds"]], "0"), 64)
		if err := errors.Join(err1, err2); err != nil {
			return t, err
		}
		t.add(wall, cpu)
	}
	return t, nil
}

// apel reads all messages, as the collector of APEL does: a head, and records of keys and values between lines of %%.
func (s *site) apel(month string) (t total, err error) {
	for _, format := range []string{"apel-grid", "apel-cloud"} {
		_, err := s.grange("usage", "export", "--format", format, "--month", month, "--site", "TEST-SITE", "-o",
			s.path("outgoing"))
		if err != nil {
			return t, err
		}
	}
	paths, err := filepath.Glob(s.path("outgoing", "????????", "??????????????"))
	if err != nil {
		return t, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return t, err
		}
		if err := t.message(text); err != nil {
			return t, fmt.Errorf("%s: %w", path, err)
		}
	}
	return t, nil
}

func (t *total) message(text []byte) error {
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Scan()
	mandatory, known := gridKeys()
	switch lines.Text() {
	case "APEL-individual-job-message: v0.3":
	case "APEL-cloud-message: v0.4":
		mandatory, known = cloudKeys()
	default:
		return fmt.Errorf("a message that begins with %q", lines.Text())
	}
	record := map[string]string{}
	for lines.Scan() {
		if lines.Text() != "%%" {
			key, value, ok := strings.Cut(lines.Text(), ": ")
			if !ok || !known[key] || value == "" {
				return fmt.Errorf("a line %q", lines.Text())
			}
			record[key] = value
			continue
		}
		for _, key := range mandatory {
			if record[key] == "" {
				return fmt.Errorf("a record without %s", key)
			}
		}
		wall, err1 := strconv.Atoi(record["WallDuration"])
		cpu, err2 := strconv.Atoi(record["CpuDuration"])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		t.add(float64(wall), float64(cpu))
		record = map[string]string{}
	}
	return lines.Err()
}

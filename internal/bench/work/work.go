// Package work is what a benchmark runs in its VMs, and beside them on the host: the same program, a part of
// grange-guest. It does one thing at a time on as many threads as it was told, for as long as it is told, and says how
// much of it was done.
package work

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Name is the first argument of grange-guest that stands for this.
const Name = "bench-work"

// Up is the first line of the output.
const Up = "up"

// Program begins a workload that is a command of the site, "program NAME=COMMAND", for a shell.
const Program = "program "

// Short is what a workload is called: of a command of the site the name that it was given.
func Short(workload string) string {
	named, _ := strings.CutPrefix(workload, Program)
	name, _, _ := strings.Cut(named, "=")
	return name
}

// Workload is one thing to do.
type Workload struct {
	Name, About string
	unit        string
	begin       func(seed int) (step func() (done float64), end func())
}

// Workloads are those that are built in. What one step does is the same everywhere, and takes milliseconds.
var Workloads = []Workload{
	{"integer", "sorting and hashing, in the caches", "MB/s", integer},
	{"float", "products of matrices, in the caches", "MFLOP/s", float},
	{"memory", "a sum of two large arrays into a third: bandwidth", "MB/s", triad},
	{"chase", "pointers through memory in an order that nothing foresees: caches and page tables miss", "M/s", chase},
	{"pages", "memory taken, touched and given back: page tables, and what EPT or NPT costs there", "pages/s", pages},
	{"fork", "processes started and ended", "1/s", forks},
}

// Names are those of Workloads.
func Names() (names []string) {
	for _, w := range Workloads {
		names = append(names, w.Name)
	}
	return names
}

// Unit is that of a workload's rate; "": its program knows.
func Unit(name string) string {
	if i := slices.IndexFunc(Workloads, func(w Workload) bool { return w.Name == name }); i >= 0 {
		return Workloads[i].unit
	}
	return ""
}

// Order is one line to a worker, and the answer to it is a rate, or a reason for none.
type Order struct {
	Workload string        `json:"workload"`
	Threads  int           `json:"threads"`
	For      time.Duration `json:"for"`
}

// Answer is a line of a worker.
type Answer struct {
	Rate  float64 `json:"rate"`
	Error string  `json:"error,omitempty"`
}

// Main serves orders until its input ends, and returns an exit status.
func Main(args []string) int {
	if len(args) == 1 && args[0] == leaf {
		return 0
	}
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "grange-guest:", err)
		return 1
	}
	return 0
}

func serve(in io.Reader, out io.Writer) error {
	if _, err := fmt.Fprintln(out, Up); err != nil {
		return err
	}
	to := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var o Order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		var a Answer
		rate, err := do(o)
		if a.Rate = rate; err != nil {
			a.Error = err.Error()
		}
		if err := to.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

func do(o Order) (rate float64, err error) {
	if named, ok := strings.CutPrefix(o.Workload, Program); ok {
		_, line, _ := strings.Cut(named, "=")
		return program(line, o)
	}
	i := slices.IndexFunc(Workloads, func(w Workload) bool { return w.Name == o.Workload })
	if i < 0 || o.Threads < 1 || o.For <= 0 {
		return 0, fmt.Errorf("no workload %q, or none of %d threads for %v", o.Workload, o.Threads, o.For)
	}
	rates, all := make([]float64, o.Threads), sync.WaitGroup{}
	for n := range rates {
		all.Go(func() { rates[n] = Workloads[i].on(n, o.For) })
	}
	all.Wait()
	for _, r := range rates {
		rate += r
	}
	return rate, nil
}

// on does a workload on one thread, after one step that does not count.
func (w Workload) on(seed int, limit time.Duration) float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	step, end := w.begin(seed)
	defer end()
	step()
	done, began := 0.0, time.Now()
	for time.Since(began) < limit {
		done += step()
	}
	return done / time.Since(began).Seconds()
}

// program runs a command of the site, which takes as long as it takes.
func program(line string, o Order) (float64, error) {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Env = append(os.Environ(), "GRANGE_BENCH_THREADS="+strconv.Itoa(o.Threads))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%w: %.300s", err, errs.String())
	}
	return Score(out.Bytes())
}

// Score is what a program printed: a number on its last line, or JSON with a number "score", as benchmarks of HEP have
// it.
func Score(out []byte) (float64, error) {
	var said struct {
		Score *float64 `json:"score"`
	}
	if json.Unmarshal(out, &said) == nil && said.Score != nil {
		return *said.Score, positive(*said.Score)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	words := strings.Fields(lines[len(lines)-1])
	if len(words) == 0 {
		return 0, errors.New("the program printed no number")
	}
	n, err := strconv.ParseFloat(words[len(words)-1], 64)
	if err != nil {
		return 0, fmt.Errorf("the program's last word is no number: %.100q", words[len(words)-1])
	}
	return n, positive(n)
}

func positive(n float64) error {
	if !(n > 0) {
		return fmt.Errorf("the program's number is %g: a rate is more than 0", n)
	}
	return nil
}

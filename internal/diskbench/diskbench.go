// Package diskbench measures what the choices for disks of VMs are worth on a host, by fio, and recommends one.
package diskbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/program"
)

// CodeBench is the code of errors of a benchmark; docs/errors.md explains it.
const CodeBench farm.Code = "disk-bench"

// tool is fio's.
const tool = "/usr/bin/fio"

// Choice is one way in which QEMU may reach a disk.
type Choice struct {
	Name   string // as a table has it: "file, writeback"
	Path   string // of the file or device
	Device bool   // it is there, and stays
	Engine string // of fio: psync, libaio, io_uring
	Direct bool   // past the page cache
}

// Pattern is one way of using a disk.
type Pattern struct {
	Name  string // "write", "rewrite", "read", "re-read", "random read", "random write"
	Block farm.Bytes
}

// kinds are the names of patterns, in the order in which they are measured: the file is there from the first one on.
var kinds = []string{"write", "rewrite", "read", "re-read", "random read", "random write"}

// Patterns are all that are measured.
func Patterns() (all []Pattern) {
	for _, block := range []farm.Bytes{4 * farm.KiB, 256 * farm.KiB} {
		for _, k := range kinds {
			all = append(all, Pattern{k, block})
		}
	}
	return all
}

func (p Pattern) String() string { return p.Name + " " + p.Block.String() }

// mode is fio's word for a pattern.
func (p Pattern) mode() string {
	return map[string]string{"write": "write", "rewrite": "write", "read": "read", "re-read": "read",
		"random read": "randread", "random write": "randwrite"}[p.Name]
}

// cold reports whether nothing of the file may be in the page cache before.
func (p Pattern) cold() bool { return p.Name != "re-read" }

// Result is one measurement.
type Result struct {
	Choice  string  `json:"choice"`
	Pattern string  `json:"pattern"`
	Block   uint64  `json:"block"`
	Rate    float64 `json:"bytes_per_second"`
	IOPS    float64 `json:"iops"`
	Late    float64 `json:"p99_milliseconds"` // of each operation, 99 of 100 take no longer
}

// Options are those of a run.
type Options struct {
	Size    farm.Bytes
	Time    time.Duration // of each measurement, at most
	Rounds  int
	Tell    func(done, all int, what string) // of the progress
	runTool func(ctx context.Context, args ...string) ([]byte, error)
}

// Run measures each choice by each pattern, in turns: what the host does meanwhile meets all of them alike. Results are
// of all rounds.
func Run(ctx context.Context, choices []Choice, o Options) (all []Result, err error) {
	if o.runTool == nil {
		o.runTool = fio
	}
	patterns, done := Patterns(), 0
	for range o.Rounds {
		for _, c := range choices {
			part, err := o.choice(ctx, c, patterns, func(p Pattern) {
				o.Tell(done, o.Rounds*len(choices)*len(patterns), c.Name+": "+p.String())
				done++
			})
			if err != nil {
				return all, err
			}
			all = append(all, part...)
		}
	}
	return all, nil
}

// choice measures one choice once.
func (o Options) choice(ctx context.Context, c Choice, patterns []Pattern,
	tell func(Pattern)) (all []Result, err error) {
	if !c.Device {
		defer func() {
			if e := os.Remove(c.Path); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}()
	}
	for _, p := range patterns {
		tell(p)
		if err := o.before(ctx, c, p); err != nil {
			return all, err
		}
		out, err := o.runTool(ctx, o.args(c, p)...)
		if err != nil {
			return all, err
		}
		r, err := parse(out, p)
		if err != nil {
			return all, err
		}
		r.Choice = c.Name
		all = append(all, r)
	}
	return all, nil
}

// before has the file be as the pattern wants it: not there for a write, whole for all others, and out of the page
// cache where it is to be cold.
func (o Options) before(ctx context.Context, c Choice, p Pattern) error {
	switch {
	case p.Name == "write" && !c.Device:
		if err := os.Remove(c.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	case p.Name == "rewrite": // a write may have ended by its time
		fill := Choice{Path: c.Path, Engine: "psync"}
		if _, err := o.runTool(ctx, append(o.common(fill), "--rw=write", "--bs=1M")...); err != nil {
			return err
		}
	}
	if p.cold() {
		dropCaches()
	}
	return ctx.Err()
}

// dropCaches needs root; without it fio itself drops what it can of the file.
func dropCaches() {
	if f, err := os.OpenFile("/proc/sys/vm/drop_caches", os.O_WRONLY, 0); err == nil {
		f.WriteString("3")
		f.Close()
	}
}

func (o Options) common(c Choice) []string {
	return []string{"--name=grange", "--filename=" + c.Path, "--size=" + strconv.FormatUint(uint64(o.Size), 10),
		"--ioengine=" + c.Engine, "--output-format=json", "--end_fsync=1", "--group_reporting", "--allow_mounted_write=0",
		"--randrepeat=1", "--norandommap"}
}

func (o Options) args(c Choice, p Pattern) []string {
	args := append(o.common(c), "--rw="+p.mode(), "--bs="+strconv.FormatUint(uint64(p.Block), 10),
		fmt.Sprintf("--runtime=%dms", o.Time.Milliseconds()))
	if c.Direct {
		args = append(args, "--direct=1", "--iodepth=16")
	}
	if !p.cold() {
		args = append(args, "--invalidate=0")
	}
	return args
}

// parse reads the JSON of fio. It may have warnings before.
func parse(text []byte, p Pattern) (Result, error) {
	type side struct {
		Bytes   uint64  `json:"io_bytes"`
		Bw      float64 `json:"bw_bytes"`
		IOPS    float64 `json:"iops"`
		Latency struct {
			Percentile map[string]float64 `json:"percentile"`
		} `json:"clat_ns"`
	}
	var out struct {
		Jobs []struct {
			Error       int
			Read, Write side
		}
	}
	if at := bytes.IndexByte(text, '{'); at > 0 {
		text = text[at:]
	}
	if err := json.Unmarshal(text, &out); err != nil || len(out.Jobs) != 1 {
		return Result{}, failed("fio's answer cannot be read", err)
	}
	s := out.Jobs[0].Read
	if strings.Contains(p.Name, "write") {
		s = out.Jobs[0].Write
	}
	if out.Jobs[0].Error != 0 || s.Bytes == 0 {
		return Result{}, failed(fmt.Sprintf("fio did nothing in %v: error %d", p, out.Jobs[0].Error), nil)
	}
	return Result{Pattern: p.Name, Block: uint64(p.Block), Rate: s.Bw, IOPS: s.IOPS,
		Late: s.Latency.Percentile["99.000000"] / 1e6}, nil
}

// fio runs it.
func fio(ctx context.Context, args ...string) ([]byte, error) {
	out, err := program.Start(ctx, program.Call{Path: tool, Args: args, Limit: 10 * time.Minute})
	switch {
	case err == nil || ctx.Err() != nil:
		return out, err
	case errors.Is(err, fs.ErrNotExist):
		return nil, &farm.Error{Kind: farm.Unavailable, Code: CodeBench, Message: "fio is not installed",
			Hint: "install Debian's package fio", Err: err}
	}
	return nil, failed("fio failed", err)
}

func failed(message string, err error) error {
	return &farm.Error{Kind: farm.Unavailable, Code: CodeBench, Message: message,
		Hint: "see the space and the rights where it measures; --dir names another directory", Err: err}
}

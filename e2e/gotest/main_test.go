package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestReport(t *testing.T) {
	allowed := []skip{{"internal/a", "TestListed*"}}
	for name, c := range map[string]struct {
		in   string
		want []string // parts of what is printed
		ok   bool
	}{
		"good": {`{"Action":"pass","Package":"p","Test":"TestOne"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}`, []string{"ok  \tp\t0.1s\n", "1 passed, 0 failed, 0 skipped\n{\"passed\":1,\"failed\":0,\"skipped\":0}\n"}, true},
		"failure": {`{"Action":"output","Package":"p","Test":"TestOne","Output":"x_test.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestOne"}
{"Action":"fail","Package":"p"}`, []string{"x_test.go:1: wrong", "failed: p TestOne", "0 passed, 1 failed, 0 skipped"}, false},
		"panic": {`{"Action":"output","Package":"p","Test":"TestOne","Output":"panic: oh\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\n"}
{"Action":"fail","Package":"p"}`, []string{"panic: oh", "FAIL\tp", "failed: p\n"}, false},
		"build": {`{"Action":"build-output","ImportPath":"p","Output":"p.go:1: undefined: x\n"}
{"Action":"fail","Package":"p"}`, []string{"undefined: x", "failed: p\n"}, false},
		"listed skip": {`{"Action":"output","Package":"` + module + `internal/a","Test":"TestListedHere","Output":"    a_test.go:1: no root\n"}
{"Action":"skip","Package":"` + module + `internal/a","Test":"TestListedHere"}`, []string{"skipped, as listed: internal/a TestListedHere: a_test.go:1: no root", "1 skipped"}, true},
		"subtest of a listed one": {`{"Action":"skip","Package":"` + module +
			`internal/a","Test":"TestListedHere/deep/down"}`, []string{"skipped, as listed"}, true},
		"unlisted skip": {`{"Action":"skip","Package":"p","Test":"TestOne"}`,
			[]string{"SKIPPED, not listed: p TestOne"}, false},
		"package without tests": {`{"Action":"skip","Package":"p"}`, []string{"0 passed, 0 failed, 0 skipped"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := newReport(&out, allowed)
			r.follow(strings.NewReader(c.in), nil)
			if ok := r.finish(); ok != c.ok {
				t.Errorf("ok is %v", ok)
			}
			for _, part := range c.want {
				if !strings.Contains(out.String(), part) {
					t.Errorf("%q is not in:\n%s", part, out.String())
				}
			}
		})
	}
}

// TestRunning: what runs is named once nothing else was printed for long, without what waits and what has ended.
func TestRunning(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out, nil)
	at := func(second int) string { return fmt.Sprintf("2026-01-01T00:00:%02dZ", second) }
	for _, line := range []string{
		`{"Time":"` + at(0) + `","Action":"run","Package":"p","Test":"TestSlow"}`,
		`{"Time":"` + at(1) + `","Action":"run","Package":"p","Test":"TestSlow/part"}`,
		`{"Time":"` + at(2) + `","Action":"run","Package":"p","Test":"TestWaits"}`,
		`{"Time":"` + at(2) + `","Action":"pause","Package":"p","Test":"TestWaits"}`,
		`{"Time":"` + at(3) + `","Action":"run","Package":"p","Test":"TestEnded"}`,
		`{"Time":"` + at(4) + `","Action":"pass","Package":"p","Test":"TestEnded"}`,
	} {
		r.line([]byte(line))
	}
	in, close := io.Pipe()
	ticks := make(chan time.Time)
	go func() {
		ticks <- time.Date(2026, 1, 1, 0, 0, 31, 0, time.UTC)
		close.Close()
	}()
	r.follow(in, ticks)
	if got, want := out.String(), "running: p TestSlow/part 30s\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

// TestStuck: a process is named when it has been stuck for a whole silence, and one that only reads its disk is not.
func TestStuck(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out, nil)
	process := func(state string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("12 (qemu) " + state + " 1 12 12 0 -1")}
	}
	proc := fstest.MapFS{"12/stat": process("D"), "self/stat": process("D"), "12/comm": {Data: []byte("qemu\n")},
		"12/stack": {Data: []byte("[<0>] io_schedule+0x1\n[<0>] read+0x2\n")}}
	r.proc = proc
	r.sayStuck()
	proc["12/stat"] = process("S")
	r.sayStuck()
	proc["12/stat"] = process("D")
	r.sayStuck()
	if out.Len() > 0 {
		t.Errorf("printed %q", &out)
	}
	r.sayStuck()
	want := "in the kernel, where no signal reaches it: 12 qemu: [<0>] io_schedule+0x1 [<0>] read+0x2\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", &out, want)
	}
}

func TestSkipsAreReadable(t *testing.T) {
	if _, err := readSkips("../skips.txt"); err != nil {
		t.Fatal(err)
	}
}

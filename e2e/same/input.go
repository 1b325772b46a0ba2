package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"syscall"
	"unicode/utf8"
)

// input is what a user chose when starting the program. It follows from the seed and its number.
type input struct {
	number int
	uid    int
	groups []uint32
	args   []string
	env    []string
	dir    string // a name below the comparison's directory
	umask  int
	limits []limit
	ignore []int
	block  []int
	nice   int
	stdin  string // null, file, pipe or closed
	files  string // what standard output and error are
}

// limit is one of setrlimit(2).
type limit struct {
	resource   int
	soft, hard uint64
}

// What standard output and error are.
const (
	pipes   = "two pipes"
	onePipe = "one pipe"
	both    = "both"    // a file, opened once
	appends = "appends" // a file, opened twice to append
	out     = "out"     // a file, and the pipe
	files   = "files"   // two files
	null    = "null"
)

// generate makes an input.
func generate(seed uint64, number int) input {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	in := input{number: number, umask: pick(r, 0o022, 0o002, 0o077, 0o027, 0, 0o007, 0o777&r.IntN(0o1000)),
		dir: text(r, 1+r.IntN(40), true), nice: pick(r, 0, 0, 1, 5, 19), stdin: pick(r, "null", "file", "pipe", "closed"),
		files: pick(r, pipes, onePipe, both, appends, out, files, null)}
	if r.IntN(2) == 0 {
		in.uid, in.groups = 65534, []uint32{65534, uint32(4000 + r.IntN(50))}
	}
	in.umask &^= 0o300 // the program writes its report to a file of its own
	for range r.IntN(6) {
		in.args = append(in.args, text(r, r.IntN(60), false))
	}
	for i := range r.IntN(6) {
		name := fmt.Sprintf("V%d%s", i, strings.ReplaceAll(text(r, r.IntN(4), false), "=", "_"))
		in.env = append(in.env, name+"="+text(r, r.IntN(80), false))
	}
	in.env = append(in.env, pick(r, "LANG=C.UTF-8", "LC_ALL=C", "LANG=de_DE.ISO-8859-1"),
		pick(r, "TZ=UTC0", "TZ=CET-1CEST,M3.5.0,M10.5.0/3", "TZ=<+0545>-5:45"))
	in.limits = limits(r)
	for s := 1; s <= 64; s++ {
		if s == 9 || s == 19 || s == 32 || s == 33 { // which no program can choose
			continue
		}
		if r.IntN(12) == 0 {
			in.ignore = append(in.ignore, s)
		}
		if r.IntN(20) == 0 && s != 11 && s != 7 && s != 4 && s != 8 { // a blocked fault ends a process
			in.block = append(in.block, s)
		}
	}
	return in
}

// limits are some of a process's, as far as the system that starts it goes on with them.
func limits(r *rand.Rand) (all []limit) {
	const mib = 1 << 20
	none := uint64(math.MaxUint64)
	for resource, values := range [][]uint64{
		{3600, 7200, none},                     // CPU
		{64 * mib, 1024 * mib, none},           // FSIZE
		{8192 * mib, 16384 * mib, none},        // DATA
		{1 * mib, 8 * mib, 64 * mib, none},     // STACK
		{0, mib, none},                         // CORE
		{512 * mib, none},                      // RSS
		{10000, 20000, 60000},                  // NPROC
		{64, 256, 1024, 4096, 524288, 1 << 20}, // NOFILE
		{0, 64 << 10, 8 * mib},                 // MEMLOCK
		{16384 * mib, 65536 * mib, none},       // AS
		{100, none},                            // LOCKS
		{1000, 5000},                           // SIGPENDING
		{0, 4096, 819200},                      // MSGQUEUE
		{0},                                    // NICE
		{0},                                    // RTPRIO
		{1000000, none},                        // RTTIME
	} {
		if r.IntN(2) == 0 {
			continue // as the system has it
		}
		soft, hard := values[r.IntN(len(values))], values[r.IntN(len(values))]
		var own syscall.Rlimit // which the program is to be started within, where this is not root of the host
		if syscall.Getrlimit(resource, &own) == nil {
			soft, hard = min(soft, own.Max), min(hard, own.Max)
		}
		all = append(all, limit{resource, min(soft, hard), max(soft, hard)})
	}
	for i, l := range all {
		if l.resource == 7 {
			all[i].hard = max(l.hard, 256)
		}
	}
	return all
}

// text is some bytes: words, blanks and quotes, UTF-8, or bytes that are none.
func text(r *rand.Rand, n int, file bool) string {
	kinds := []string{"abc", "a b'c\"$*\\", "ü€字", "caf\xe9 \xff\xfe\x80", "\n\t\x01\x7f", "%s%n\xef\xbf\xbd"}
	kind := kinds[r.IntN(len(kinds))]
	var alphabet []string
	for i := 0; i < len(kind); {
		_, size := utf8.DecodeRuneInString(kind[i:]) // 1 of a byte that is no UTF-8
		alphabet, i = append(alphabet, kind[i:i+size]), i+size
	}
	var b strings.Builder
	if file {
		b.WriteByte('d')
	}
	for b.Len() < n {
		b.WriteString(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}

// ofDaemon is the input without what a job does not have from the one who submits it: its processes are started by a
// daemon, in the daemon's state. The limits stay, for systems that know them as options.
func (in input) ofDaemon() input {
	in.uid, in.groups = 65534, []uint32{65534}
	in.umask, in.ignore, in.block, in.nice = 0o022, nil, nil, 0
	if in.stdin != "file" {
		in.stdin = "null"
	}
	return in
}

// withoutLineEnds is the input with blanks in the place of line ends.
func (in input) withoutLineEnds() input {
	in.dir = oneLine(in.dir)
	for _, list := range [][]string{in.args, in.env} {
		for i, text := range list {
			list[i] = oneLine(text)
		}
	}
	return in
}

func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }

// options are those of launch.
func (in input) options(c *testCase) []string {
	words := []string{fmt.Sprintf("umask=%o", in.umask)}
	for _, l := range in.limits {
		words = append(words, fmt.Sprintf("limit=%d:%d:%d", l.resource, l.soft, l.hard))
	}
	for _, s := range in.ignore {
		words = append(words, fmt.Sprintf("ignore=%d", s))
	}
	for _, s := range in.block {
		words = append(words, fmt.Sprintf("block=%d", s))
	}
	words = append(words, fmt.Sprintf("nice=%d", in.nice))
	switch in.stdin {
	case "file":
		words = append(words, "in="+c.path("input"))
	case "closed":
		words = append(words, "close=0")
	}
	switch in.files {
	case both, appends:
		words = append(words, in.files+"="+c.path("out"))
	case out:
		words = append(words, "out="+c.path("out"))
	case files:
		words = append(words, "out="+c.path("out"), "err="+c.path("err"))
	case null:
		words = append(words, "both=/dev/null")
	}
	return words
}

// String is the input as a person repeats it.
func (in input) String() string {
	return fmt.Sprintf("input %d: uid %d, %s, stdin %s, %d arguments, directory %q", in.number, in.uid, in.files,
		in.stdin, len(in.args), in.dir)
}

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

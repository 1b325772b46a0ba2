// Package load uses a directory as jobs do, and prints how fast that went: one large file, and many small ones. It is a
// part of grange-guest.
package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/grange-project/grange/internal/cputicks"
)

// Name is the first argument of grange-guest that stands for this.
const Name = "file-bench"

// Phases are what is measured, in this order. The first two are of bytes, the others of files.
var Phases = []string{"write", "read", "create", "stat", "delete"}

// Lines of the output. What stands behind End is the phase, the bytes or files, nanoseconds, and the ticks of this
// machine's CPUs; behind Begin the phase alone. Done comes last.
const (
	Begin = "begin"
	End   = "end"
	Done  = "done"
)

// Options are those of a run.
type Options struct {
	Dir   string
	Size  int64         // of the large file
	Files int           // small ones
	Time  time.Duration // of a phase at most, but for delete, which leaves nothing
}

// Args are the words behind Name.
func (o Options) Args() []string {
	return []string{o.Dir, strconv.FormatInt(o.Size, 10), strconv.Itoa(o.Files), o.Time.String()}
}

// parse reads what Args returns.
func parse(args []string) (o Options, err error) {
	if len(args) != 4 {
		return o, errors.New(Name + " DIR BYTES FILES TIME")
	}
	o.Dir = args[0]
	size, err := strconv.ParseInt(args[1], 10, 64)
	files, err2 := strconv.Atoi(args[2])
	limit, err3 := time.ParseDuration(args[3])
	o.Size, o.Files, o.Time = size, files, limit
	return o, errors.Join(err, err2, err3)
}

// Main runs it and returns an exit status.
func Main(args []string) int {
	o, err := parse(args)
	if err == nil {
		err = Run(o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "grange-guest:", err)
		return 1
	}
	return 0
}

const (
	block     = 1 << 20 // of the large file
	smallSize = 4 << 10
	// settle is longer than a VM believes what it was told of a file.
	settle = 1500 * time.Millisecond
)

// run is one under way.
type run struct {
	Options
	out   io.Writer
	large string
	dir   string // of the small files
	made  int    // small files
}

// Run measures all phases. It leaves nothing in the directory, unless it fails.
func Run(o Options, out io.Writer) error {
	r := &run{Options: o, out: out, large: filepath.Join(o.Dir, "large"), dir: filepath.Join(o.Dir, "small")}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	phases := map[string]func() (int64, error){"write": r.write, "read": r.read, "create": r.create, "stat": r.stat,
		"delete": r.delete}
	for _, name := range Phases {
		if name == "stat" {
			time.Sleep(settle)
		}
		if err := r.phase(name, phases[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if name == "read" {
			if err := os.Remove(r.large); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(r.dir); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, Done)
	return err
}

func (r *run) phase(name string, do func() (int64, error)) error {
	if _, err := fmt.Fprintln(r.out, Begin, name); err != nil {
		return err
	}
	ticks, began := cputicks.Busy(), time.Now()
	amount, err := do()
	if err != nil {
		return err
	}
	took := time.Since(began)
	_, err = fmt.Fprintln(r.out, End, name, amount, took.Nanoseconds(), cputicks.Busy()-ticks)
	return err
}

// write makes the large file, of bytes that nothing can compress, and has it on the host.
func (r *run) write() (done int64, err error) {
	f, err := os.OpenFile(r.large, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := noise()
	for limit := time.Now().Add(r.Time); done < r.Size && (done == 0 || time.Now().Before(limit)); {
		n, err := f.Write(buf[:min(block, r.Size-done)])
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	if err := f.Sync(); err != nil {
		return done, err
	}
	return done, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

func noise() []byte {
	buf := make([]byte, block)
	random := rand.NewPCG(1, 2)
	for i := range buf {
		buf[i] = byte(random.Uint64())
	}
	return buf
}

// read reads what write made, of which this kernel has nothing in memory.
func (r *run) read() (done int64, err error) {
	f, err := os.Open(r.large)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	buf := make([]byte, block)
	for limit := time.Now().Add(r.Time); done == 0 || time.Now().Before(limit); {
		n, err := f.Read(buf)
		done += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (r *run) small(n int) string { return filepath.Join(r.dir, strconv.Itoa(n)) }

// until calls do for one number after the other, as long as there is time.
func (r *run) until(n int, do func(int) error) (done int64, err error) {
	for limit := time.Now().Add(r.Time); done < int64(n) && (done == 0 || time.Now().Before(limit)); done++ {
		if err := do(int(done)); err != nil {
			return done, err
		}
	}
	return done, nil
}

func (r *run) create() (int64, error) {
	content := noise()[:smallSize]
	done, err := r.until(r.Files, func(i int) error { return os.WriteFile(r.small(i), content, 0o600) })
	r.made = int(done)
	return done, err
}

// stat asks for each file once. What the kernel was told when it was made, it does not believe any more.
func (r *run) stat() (int64, error) {
	return r.until(r.made, func(i int) error {
		info, err := os.Lstat(r.small(i))
		if err == nil && info.Size() != smallSize {
			err = fmt.Errorf("%s has %d bytes, not %d", r.small(i), info.Size(), smallSize)
		}
		return err
	})
}

func (r *run) delete() (int64, error) {
	for i := range r.made {
		if err := os.Remove(r.small(i)); err != nil {
			return int64(i), err
		}
	}
	return int64(r.made), nil
}

// Phase is what one line with End says.
type Phase struct {
	Name   string
	Amount int64
	Took   time.Duration
	Ticks  int64 // of the machine where it ran
}

// Read reads the output of a run, which may have other lines between. Begun is called when a phase begins, ended when
// it has ended. An error says that the run did not come to its end.
func Read(out io.Reader, begun func(name string), ended func(Phase)) error {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var p Phase
		var word string
		switch n, _ := fmt.Sscan(lines.Text(), &word, &p.Name, &p.Amount, (*int64)(&p.Took), &p.Ticks); {
		case word == Done && n == 1:
			return nil
		case word == Begin && n == 2:
			begun(p.Name)
		case word == End && n == 5 && p.Amount > 0 && p.Took > 0:
			ended(p)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

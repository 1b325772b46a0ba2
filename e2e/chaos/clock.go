package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/grange-project/grange/e2e/lab"
)

// clock is the time of day of the programs under test, which can jump while the machine's own clock, which others use,
// does not. The programs are built with a package time that adds what stands in a shared file to the time of day; the
// monotonic clock never jumps.
type clock struct {
	dir    string
	offset []byte // mapped
}

// clockFile names the file to the programs.
const clockFile = "GRANGE_TEST_CLOCK"

func newClock() (*clock, error) {
	dir, err := os.MkdirTemp("/tmp", "gc")
	if err != nil {
		return nil, err
	}
	c := &clock{dir: dir}
	file, err := os.Create(filepath.Join(dir, "offset"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer file.Close()
	if err = file.Truncate(int64(os.Getpagesize())); err == nil {
		c.offset, err = syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Setenv(clockFile, file.Name()))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

func (c *clock) close() error {
	return errors.Join(syscall.Munmap(c.offset), os.RemoveAll(c.dir))
}

// jump sets how far the programs' time of day is ahead of the machine's.
func (c *clock) jump(d time.Duration) {
	binary.NativeEndian.PutUint64(c.offset, uint64(int64(d/time.Second)))
}

func (c *clock) programs() string { return filepath.Join(c.dir, "bin") }

// jumps is what is added to package time.
const jumps = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var clockOffset = func() *int64 {
	path, _ := syscall.Getenv("` + clockFile + `")
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return new(int64)
	}
	page, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	syscall.Close(fd)
	if err != nil {
		return new(int64)
	}
	return (*int64)(unsafe.Pointer(&page[0]))
}()

func jumped() int64 {
	if clockOffset == nil { // while packages initialise
		return 0
	}
	return atomic.LoadInt64(clockOffset)
}
`

// build compiles both programs with the clock that jumps.
func (c *clock) build(ctx context.Context) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return err
	}
	read := []byte("sec, nsec, mono := runtimeNow()\n")
	if bytes.Count(text, read) != 1 {
		return fmt.Errorf("package time of this Go, in %s, reads the clock in another way than is known here", source)
	}
	text = bytes.Replace(text, read, append(read, "\tsec += jumped()\n"...), 1)
	replace := map[string]string{}
	for name, content := range map[string][]byte{"time.go": text, "jumps.go": []byte(jumps)} {
		replace[filepath.Join(source, name)] = filepath.Join(c.dir, name)
		if err := os.WriteFile(filepath.Join(c.dir, name), content, 0o644); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	path := filepath.Join(c.dir, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o644); err != nil {
		return err
	}
	return lab.BuildFrom(ctx, lab.Source(), c.programs(), "-overlay", path)
}

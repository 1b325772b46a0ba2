package selftest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"time"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/selftest/probe"
	"github.com/grange-project/grange/internal/selftest/verdict"
)

// copied is how many bytes go in and come back: far more than is kept on the way.
const copied = 16 << 20

// noise is bytes that look like nothing: every value, no order. It is the same each time.
func noise() io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{'g', 'r', 'a', 'n', 'g', 'e'}), copied)
}

// streams sends noise to a job, which sends it back and writes its digest to standard error.
func (t *tester) streams(ctx context.Context) verdict.Copy {
	c := verdict.Copy{Sent: copied}
	sent, received := sha256.New(), sha256.New()
	flags := append(t.launcher().Bind(), "--quiet", "--no-wait")
	cmd := t.exec(ctx, verdict.One(t.room), flags, t.probeIn(probe.Echo)...)
	var errs bytes.Buffer
	counted := &counter{to: received}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = io.TeeReader(noise(), sent), counted, &errs
	began := time.Now()
	err := cmd.Run()
	c.Took, c.Received = time.Since(began), counted.n
	if cmd.ProcessState == nil {
		c.Code, c.Details = string(farm.CodeInternal), []string{err.Error()}
		return c
	}
	c.Status = cmd.ProcessState.ExitCode()
	want := probe.Digest(sent.Sum(nil))
	c.Same = bytes.Equal(sent.Sum(nil), received.Sum(nil))
	c.SeenInGuest = bytes.Contains(errs.Bytes(), []byte(want))
	c.Apart = errs.String() == want
	if !c.Apart {
		c.Details = append(c.Details, errs.String()[:min(errs.Len(), 500)])
	}
	const notStarted = 199
	if c.Status == notStarted {
		c.Refused = bytes.Contains(errs.Bytes(), []byte("[no-room]"))
		c.Code = verdict.NotStarted
	}
	return c
}

type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.to.Write(p)
}

// exits runs jobs that end in every way.
func (t *tester) exits(ctx context.Context) []verdict.Ending {
	all := []verdict.Ending{{How: "exit 0"}, {How: "exit 1", Want: 1}, {How: "exit 255", Want: 255},
		{How: "signal 9", Want: 128 + 9}}
	argv := [][]string{{probe.Exit, "0"}, {probe.Exit, "1"}, {probe.Exit, "255"}, {probe.Kill, "9"}}
	for i := range all {
		flags := append(t.launcher().Bind(), "--no-wait")
		all[i].Job, _ = t.run(ctx, verdict.One(t.room), flags, t.probeIn(argv[i]...)...)
	}
	return all
}

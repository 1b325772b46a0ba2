package guest

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Streams of steps: where a job's batch system starts parallel parts of a job from the job's script (srun), the script
// in the VM asks its `grange exec` for them. Each of MaxSteps slots has four streams, and serves one step after the
// other.
const (
	StreamStep  = 64 // messages of the first slot, then its stdin, stdout and stderr; the next slot has 68, and so on
	StepStreams = 4
	MaxSteps    = 16
)

// MaxStepLine is the longest line of a guest on a slot: far beyond what a kernel lets a command and its environment
// have (ARG_MAX is 2 MiB by default), and MaxSteps times as much does its host no harm.
const MaxStepLine = 8 << 20

// StepRequest is one line from the guest on a slot's first stream.
type StepRequest struct {
	Open   *Step `json:"open,omitempty"`
	Signal int   `json:"signal,omitempty"`
}

// Step is a call of srun in the VM.
type Step struct {
	Argv []string `json:"argv"` // without srun itself
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
	Raw  *Raw     `json:"raw,omitempty"` // while it is carried
	Process
}

// StepAnswer is one line to the guest: how the step ended. It comes once for each Open, when all output is on its way.
type StepAnswer struct {
	Status  int    `json:"status"`
	Refused string `json:"refused,omitempty"` // why it was not started
}

// A slot's streams never end, so what one step reads or writes goes in chunks: a length of four bytes, the bytes. An
// empty one is the end.
const maxChunk = 32 << 10

// WriteChunks carries all of r, and its end.
func WriteChunks(w io.Writer, r io.Reader) error {
	buf := make([]byte, 4+maxChunk)
	for {
		n, err := r.Read(buf[4:])
		if n > 0 {
			binary.LittleEndian.PutUint32(buf, uint32(n))
			if _, err := w.Write(buf[:4+n]); err != nil {
				return err
			}
		}
		if err != nil {
			_, failed := w.Write(make([]byte, 4))
			return failed
		}
	}
}

// ReadChunks carries what one WriteChunks sent to w, and reads it to its end though w fails. It returns an error only
// where r does.
func ReadChunks(w io.Writer, r io.Reader) error {
	buf := make([]byte, maxChunk)
	for broken := false; ; {
		if _, err := io.ReadFull(r, buf[:4]); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(buf)
		switch {
		case n == 0:
			return nil
		case n > maxChunk:
			return fmt.Errorf("a chunk of %d bytes", n)
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return err
		}
		if !broken {
			_, err := w.Write(buf[:n])
			broken = err != nil
		}
	}
}

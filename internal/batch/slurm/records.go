package slurm

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"

	"github.com/grange-project/grange/internal/batch"
	"github.com/grange-project/grange/internal/farm"
)

// records runs a command that prints n fields a job, and returns them. Users choose names and comments, with any
// character in them, line ends too: what ends a field is different each time, so that nobody can have written it there.
func (d *Driver) records(ctx context.Context, command string, n int, args func(end string) []string) (
	[][]string, error) {
	end := separator + rand.Text() + separator
	out, err := d.command(ctx, command, args(end)...)
	if err != nil {
		return nil, err
	}
	all, ok := split(out, end, n)
	if !ok {
		const most = 500
		out = strings.ReplaceAll(out[:min(len(out), most)], end, "|")
		return nil, batch.Garbled(farm.Slurm, command, errors.New(strconv.Quote(out)))
	}
	return all, nil
}

// split returns the records of n fields, each field with end behind it, each record with a line end.
func split(out, end string, n int) (all [][]string, ok bool) {
	for out != "" {
		f := strings.SplitN(out, end, n+1)
		if len(f) != n+1 {
			return nil, false
		}
		if out, ok = strings.CutPrefix(f[n], "\n"); !ok {
			return nil, false
		}
		all = append(all, f[:n])
	}
	return all, true
}

// commentMark begins the word of a job's comment that names what it asked for by --vm. Who submits may write it there;
// docs/guide/slurm.md has a cli_filter.lua that does.
const commentMark = "grange:vm="

// wished returns image and shape that a comment names.
func wished(comment string) (image, shape string) {
	for word := range strings.FieldsSeq(comment) {
		vm, ok := strings.CutPrefix(word, commentMark)
		switch {
		case !ok:
		case strings.Contains(vm, "://"): // a place has colons of its own
			image, shape, _ = strings.Cut(vm, ",")
		case strings.HasPrefix(vm, "sha256:"):
			digest, rest, _ := strings.Cut(strings.TrimPrefix(vm, "sha256:"), ":")
			image, shape = "sha256:"+digest, rest
		default:
			image, shape, _ = strings.Cut(vm, ":")
		}
	}
	return image, shape
}

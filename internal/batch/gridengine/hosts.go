package gridengine

import (
	"context"
	"errors"
	"fmt"

	"github.com/grange-project/grange/internal/farm"
)

// NewHost is an execution host that joins or leaves a cell.
type NewHost struct {
	Name  string
	Queue string
	Group string // host group of the queue, as @allhosts
	Slots int
}

// AddHost makes a host an execution host of the queue. Steps that were taken before are no error, so that a call that
// was cut short can be repeated. The last step is what lets jobs in.
func (c *Cell) AddHost(ctx context.Context, h NewHost) error {
	if _, err := c.qconf(ctx, "-ah", h.Name); err != nil && !conflict(err) {
		return err
	}
	object := fmt.Sprintf("hostname %s\nload_scaling NONE\ncomplex_values NONE\nuser_lists NONE\nxuser_lists "+
		"NONE\nprojects NONE\nxprojects NONE\nusage_scaling NONE\nreport_variables NONE\n", h.Name)
	if err := withFile("host", object,
		func(path string) error { _, err := c.qconf(ctx, "-Ae", path); return err }); err != nil && !conflict(err) {
		return err
	}
	if _, err := c.qconf(ctx, "-aattr", "queue", "slots", fmt.Sprintf("[%s=%d]", h.Name, h.Slots),
		h.Queue); err != nil {
		return err
	}
	_, err := c.qconf(ctx, "-aattr", "hostgroup", "hostlist", h.Name, h.Group)
	return err
}

// RemoveHost takes a host out of the queue and the cell. Jobs that run there keep it in the cell: then it is Conflict,
// no new jobs come, and the call is to be repeated when they have ended.
func (c *Cell) RemoveHost(ctx context.Context, h NewHost) error {
	steps := [][]string{
		{"-dattr", "hostgroup", "hostlist", h.Name, h.Group},
		{"-purge", "queue", "slots", h.Queue + "@" + h.Name},
		{"-de", h.Name},
		{"-dconf", h.Name},
		{"-dh", h.Name},
	}
	for _, step := range steps {
		if _, err := c.qconf(ctx, step...); err != nil && !conflict(err) {
			return err
		}
	}
	left, err := c.qconf(ctx, "-sel")
	if err != nil {
		return err
	}
	for _, name := range firstWords(left) {
		if name == h.Name {
			_, err := c.qconf(ctx, "-de", h.Name)
			if err == nil {
				return nil
			}
			return fmt.Errorf("host %s stays in the cell: %w", h.Name, err)
		}
	}
	return nil
}

// conflict tells a refusal of qconf from a master that is away.
func conflict(err error) bool {
	e := new(farm.Error)
	return errors.As(err, &e) && e.Code == farm.CodeQconf
}

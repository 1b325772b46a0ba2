package server

import (
	"context"

	"github.com/grange-project/grange/internal/farm"
)

// brokerOf tells what the batch system of a host's cell makes of its closing.
func (c *call) brokerOf(v *HostView, cell farm.Cell) error { return nil }

func (s *Server) brokers(ctx context.Context, epoch int64) error { return nil }

package app

import (
	"bufio"
	"context"
	"io"
	"strings"
)

// SaidYes reads an answer. Nothing ends a read of a terminal, so after ctrl-C it stays behind; it ends with the
// program, which is next.
func SaidYes(ctx context.Context, in io.Reader) bool {
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case word := <-answer:
		return ctx.Err() == nil && (word == "y" || word == "yes")
	case <-ctx.Done():
		return false
	}
}

package app

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/grange-project/grange/internal/farm"
)

// Confirm asks a question on the terminal. If the answer is not yes, the error says what was not done, as in "nothing
// was deleted"; if there is no terminal, also what to do instead.
func (a *App) Confirm(ctx context.Context, question, undone, hint string) error {
	if !term.IsTerminal(int(os.Stdin.Fd())) {
		return &farm.Error{Kind: farm.Invalid, Code: CodeNeedsYes,
			Message: undone + ": no terminal to ask on", Hint: hint}
	}
	fmt.Fprint(a.Err, question, " [y/N] ")
	if saidYes(ctx, os.Stdin) {
		return nil
	}
	return &farm.Error{Kind: farm.Invalid, Code: CodeNeedsYes, Message: undone}
}

// saidYes reads an answer. Nothing ends a read of a terminal, so after ctrl-C it stays behind; it ends with the
// program, which is next.
func saidYes(ctx context.Context, in io.Reader) bool {
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

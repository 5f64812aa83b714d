package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// confirm asks a person. Without one it refuses; refused is the error of a person who says no.
func confirm(cmd *cobra.Command, question, refused string) error {
	if !isTerminal(os.Stdin) {
		return usagef("%s asks first; without a terminal give --yes", cmd.CommandPath())
	}
	cmd.PrintErrf("%s [y/N] ", question)
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if a := strings.ToLower(strings.TrimSpace(line)); a != "y" && a != "yes" {
		return errors.New(refused)
	}
	return nil
}

"""Rules that more than one service needs: names, labels, quantities, start parameters, validation. Pure."""
